// How LMDB 0.9 lays its files out on a 64-bit system: what file_check reads. From lmdb's mdb.c, whose types these are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tq::index::lmdb_file {

// A page: header, then the offsets of its nodes growing up, then free room, then the nodes growing down.
//   0 | page number | 8 | pad | 10 | flags | 12 | lower | 14 | upper, or (overflow) u32 pages | 16 | offsets, u16 each
struct PageHeader {
  std::uint64_t number;
  std::uint16_t pad;
  std::uint16_t flags;
  std::uint16_t lower;
  std::uint16_t upper;
};
static_assert(sizeof(PageHeader) == 16);
enum PageFlag : std::uint16_t { branch = 0x01, leaf = 0x02, overflow = 0x04, meta = 0x08 };

// A node: header, key, then (leaf) data. Branch: the child's number is flags << 32 | high << 16 | low.
struct NodeHeader {
  std::uint16_t low;  // leaf: of the data's size
  std::uint16_t high;
  std::uint16_t flags;
  std::uint16_t key_nbytes;
};
static_assert(sizeof(NodeHeader) == 8);
enum NodeFlag : std::uint16_t { big_data = 0x01, sub_database = 0x02, duplicates = 0x04 };

struct Tree {
  std::uint32_t pad;  // in the free list's: the page size
  std::uint16_t flags;
  std::uint16_t depth;
  std::uint64_t branch_pages;
  std::uint64_t leaf_pages;
  std::uint64_t overflow_pages;
  std::uint64_t entries;
  std::uint64_t root;
};
static_assert(sizeof(Tree) == 48);
inline constexpr std::uint64_t no_page = ~std::uint64_t{0};
inline constexpr std::uint16_t integer_keys = 0x08;
inline constexpr unsigned max_depth = 32;  // of LMDB's cursors

// Pages 0 and 1, behind their headers.
struct Meta {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t address;
  std::uint64_t map_bytes;
  Tree trees[2];  // the free list, the named databases
  std::uint64_t last_page;
  std::uint64_t transaction;
};
static_assert(sizeof(Meta) == 136 && offsetof(Meta, last_page) == 120);
inline constexpr std::uint32_t magic = 0xBEEFC0DE;
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint64_t meta_pages = 2;

// lock.mdb: a line, a line with the writers' mutex, then the readers.
//   0 | magic | 4 | format | 8 | readers' mutex [40] | 48 | transaction | 56 | readers | 64 | writers' mutex [40] | 128 | slots
inline constexpr std::size_t reader_mutex_offset = 8;
inline constexpr std::size_t transaction_offset = 48;
inline constexpr std::size_t n_readers_offset = 56;
inline constexpr std::size_t writer_mutex_offset = 64;
inline constexpr std::size_t readers_offset = 128;
inline constexpr std::size_t reader_nbytes = 64;

}  // namespace tq::index::lmdb_file
