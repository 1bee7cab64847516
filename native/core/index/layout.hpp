// The layouts of a block's fields: bytes in the block's record, and the parsed form that answers share.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/index/names.hpp"
#include "core/index/records.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

// A published block, immutable: the same ref always parses to the same value, so it may be shared and kept.
struct ParsedBlock {
  BlockRef ref;
  Span span;
  std::int64_t n_rows = 0;
  std::vector<FieldId> ids;  // ascending
  std::vector<FieldLayout> layouts;

  // Position of a field, or -1. `hint` is tried first: blocks of one answer mostly have the same fields.
  std::int32_t find(FieldId id, std::int32_t hint) const;
};

// Throws Error(invalid) when a field lies outside of the block or its name is no name or stands twice.
void check_layouts(const std::vector<FieldLayout>& fields, std::uint64_t block_nbytes, std::int64_t n_rows);

// varint n | n x { varint id | u8 kind | varint data_offset, data_nbytes, row_nbytes, offsets_offset | schema }, ascending by
// id. Names are those of the ids. A schema is varint 0 | varint, bytes where it stands for the first time, else the varint k
// for the k-th that did: fields are of a few types, and of a put of one row the schemas were most of the index.
std::string encode_layouts(const std::vector<FieldLayout>& fields, const std::vector<FieldId>& ids);

// By ref. Generations never repeat, so nothing in it can become wrong; but most blocks are cleared or coalesced soon after they
// were read, and nobody asks for those again. So for every block that comes in, the two that were looked at longest ago are
// looked up, and leave when they are gone: what is kept stays below about twice what lives, or `min_fields`, however many
// blocks a process reads in its life. One look a block would not do: blocks that stay would use it up.
class LayoutCache {
 public:
  // The blocks of `refs`, from the cache or parsed from the transaction.
  std::vector<std::shared_ptr<const ParsedBlock>> blocks(const Txn& txn, FieldNames& names, const std::vector<BlockRef>& refs);
  std::size_t n_fields() const;  // layouts kept, of all blocks

  static constexpr std::size_t min_fields = 1u << 12;  // fewer are not worth a look: about 0.8 MB
  static constexpr std::size_t max_fields = 1u << 16;  // about 13 MB; beyond, those that were parsed or looked at longest ago go

 private:
  static constexpr std::size_t looks_a_block = 2;

  std::shared_ptr<const ParsedBlock> parse(const Txn& txn, FieldNames& names, BlockRef ref);
  void keep(const std::vector<std::shared_ptr<const ParsedBlock>>& parsed);
  void drop_gone(const Txn& txn, std::size_t looks);
  void drop(std::uint64_t ref);  // with mutex_ held

  struct Kept {
    std::shared_ptr<const ParsedBlock> block;
    std::list<std::uint64_t>::iterator place;  // in order_
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Kept> by_ref_;
  std::list<std::uint64_t> order_;  // parsed or looked at longest ago first
  std::size_t n_fields_ = 0;
};

}  // namespace tq::index
