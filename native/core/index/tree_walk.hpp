// The pages of one snapshot of an index, followed from the roots of its trees as LMDB would follow them, but with a look at
// every number first. Error(corrupt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/lmdb_file.hpp"

namespace tq::index {

[[noreturn]] void damaged(const std::string& what);

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class TreeWalk {
 public:
  // `transaction`: the one that wrote the snapshot.
  TreeWalk(const std::byte* base, std::uint64_t page_nbytes, std::uint64_t n_pages, std::uint64_t transaction);

  // `databases`: the tree of the named databases, whose own trees are walked after it; `free`: that of the free list.
  enum class What { free, databases, records };
  void tree(const lmdb_file::Tree& tree, What what);
  // Once all trees were walked: no page that they reach is on the free list, and none stands there twice.
  void check_free_pages();

 private:
  void claim(std::uint64_t number, std::uint64_t count);
  const std::byte* at(std::uint64_t number) const { return base_ + number * page_nbytes_; }
  void page(std::uint64_t number, unsigned levels, What what);
  void check_key(std::string_view key, std::string_view before, What what) const;
  // Returns how many bytes the data takes in the page.
  std::size_t leaf_data(const lmdb_file::NodeHeader& node, const std::byte* data, std::size_t left, What what);
  const std::byte* overflow_data(std::uint64_t number, std::uint64_t nbytes);
  void free_list(const std::byte* data, std::uint64_t nbytes);

  const std::byte* base_;
  const std::uint64_t page_nbytes_;
  const std::uint64_t n_pages_;
  const std::uint64_t transaction_;
  std::vector<bool> seen_;
  std::vector<std::uint64_t> free_;
  std::vector<lmdb_file::Tree> databases_;
  struct {
    std::uint64_t branch_pages = 0, leaf_pages = 0, overflow_pages = 0, entries = 0;
  } found_;
};

}  // namespace tq::index
