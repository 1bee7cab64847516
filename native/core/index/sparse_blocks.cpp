// One pass over the records of blocks, and one over the runs of the partitions that have such blocks. In read transactions
// of a bounded number of records each, so that none pins freed pages for long: rows never enter a block after its publication,
// so what is found later than the rest is what is left of it.
#include <map>
#include <unordered_map>

#include "core/index/impl.hpp"

namespace tq {
namespace {

using namespace index;

constexpr std::size_t max_blocks_looked_at = 1u << 18;  // of one call: about 25 ms
constexpr std::size_t max_blocks = 4096;                // to choose from, of one call
constexpr std::uint64_t max_rows = 1u << 20;            // of all of these: bounds the ranges
constexpr std::size_t runs_per_txn = 1u << 14;

class Search {
 public:
  Search(Index::Impl& impl, SparseBlocks& answer, bool spilled) : impl_(impl), answer_(answer), spilled_(spilled) {}

  void find_blocks(BlockRef after, std::optional<Span> within) {
    const ReadTxn txn(*impl_.env);
    const auto value = txn.get(Key(Table::counters));
    if (!value) corrupt("the counters are missing");
    const Counters counters = Counters::parse(*value);
    const RegionBytes& region = spilled_ ? counters.spill : counters;
    if (!within && region.used_bytes == region.live_bytes && (spilled_ || counters.headroom_taken == 0)) return;
    std::uint64_t rows = 0;
    std::size_t seen = 0;
    std::vector<BlockRef> refs;
    Cursor cursor(txn, Table::blocks);
    for (bool found = cursor.seek(Key(Table::blocks).u64(after.word + 1)); found; found = cursor.next()) {
      const BlockRef ref{key_u64(cursor.tail(), 0)};
      if (++seen > max_blocks_looked_at || refs.size() == max_blocks || rows > max_rows) break;
      answer_.next = ref;
      const BlockRecord record = BlockRecord::parse(cursor.value());
      if (record.span.spilled() != spilled_) continue;  // each region is looked at when it is short
      const bool headroom = in_headroom(counters, record.span);
      if (within) {
        if (record.span.offset >= within->offset + within->nbytes || record.span.offset + record.span.nbytes <= within->offset) continue;
      } else if (record.live_cells == record.cells && !headroom) {
        continue;
      }
      numbers_.emplace(ref.word, refs.size());
      refs.push_back(ref);
      answer_.blocks.push_back({ref, record.span, static_cast<std::int64_t>(record.n_rows), headroom});
      partitions_[record.partition] += 1;
      rows += std::min(record.n_rows, record.live_cells);
    }
    if (!cursor.seek(Key(Table::blocks).u64(answer_.next.word + 1))) answer_.next = {};
    parsed_ = impl_.caches->layouts.blocks(txn, impl_.caches->fields, refs);
  }

  void find_rows() {
    for (const auto& [id, n_blocks] : partitions_) {
      RowIndex from = 0;
      while (from >= 0) from = find_rows_of(id, from);
    }
  }

 private:
  // Goes on at row `from`; returns where to go on next, -1 at the end.
  RowIndex find_rows_of(PartitionId id, RowIndex from) {
    const ReadTxn txn(*impl_.env);
    auto record = partition_by_id(txn, id);
    if (!record) return -1;  // cleared
    const Partition partition{id, std::move(*record)};
    DoomedRows doomed(txn, partition);
    RunCursor runs(txn, id);
    std::size_t seen = 0;
    for (bool found = runs.seek(from); found; found = runs.next()) {
      const RunView& run = runs.run();
      if (++seen > runs_per_txn) return run.start;
      run.for_each([&](BlockRef ref, std::uint32_t block_row, std::size_t n_fields, const char* fields) {
        const auto at = numbers_.find(ref.word);
        if (at == numbers_.end()) return;
        // Where a transaction ended inside of what is one run now, its front is listed already.
        const RowIndex start = std::max(run.start, from);
        doomed.for_each_living(start, run.end() - start, [&](RowIndex first, std::int64_t count) {
          add(partition, at->second, {fields, n_fields * sizeof(FieldId)}, first, count, block_row + (first - run.start));
        });
      });
    }
    return -1;
  }

  void add(const Partition& partition, std::size_t block, std::string_view fields, RowIndex row, std::int64_t count, std::int64_t block_row) {
    const std::size_t shape = shape_of(partition, block, fields);
    if (!answer_.ranges.empty()) {
      SparseBlocks::Range& last = answer_.ranges.back();
      if (last.shape == static_cast<std::int64_t>(shape) && last.row + last.count == row && last.block_row + last.count == block_row) {
        last.count += count;
        return;
      }
    }
    answer_.ranges.push_back({static_cast<std::int64_t>(shape), row, count, block_row});
  }

  std::size_t shape_of(const Partition& partition, std::size_t block, std::string_view fields) {
    const auto [at, fresh] = shapes_.emplace(std::pair(block, std::string(fields)), answer_.shapes.size());
    if (!fresh) return at->second;
    const std::shared_ptr<const ParsedBlock>& parsed = parsed_[block];
    SparseBlocks::Shape shape;
    shape.block = static_cast<std::int64_t>(block);
    Writer key;
    key.number(partition.id);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < fields.size() / sizeof(FieldId); ++i) {
      const FieldId id = field_at(fields.data(), i);
      const std::int32_t place = parsed->find(id, static_cast<std::int32_t>(i));
      if (place < 0) corrupt("a cell of a field that its block lacks");
      const FieldLayout& layout = parsed->layouts[static_cast<std::size_t>(place)];
      shape.fields.emplace_back(parsed, &layout);
      key.number(id).number(layout.schema_id).number(static_cast<std::uint8_t>(layout.kind)).number(layout.row_nbytes);
      names.push_back(layout.name);
    }
    const auto [group, new_group] = groups_.emplace(std::string(key.view()), answer_.groups.size());
    if (new_group) answer_.groups.push_back({partition.record.name, std::move(names)});
    shape.group = static_cast<std::int64_t>(group->second);
    answer_.shapes.push_back(std::move(shape));
    return at->second;
  }

  Index::Impl& impl_;
  SparseBlocks& answer_;
  const bool spilled_;
  std::unordered_map<std::uint64_t, std::size_t> numbers_;  // ref -> position in the answer's blocks
  std::vector<std::shared_ptr<const ParsedBlock>> parsed_;
  std::map<PartitionId, std::size_t> partitions_;
  std::map<std::pair<std::size_t, std::string>, std::size_t> shapes_;
  std::map<std::string, std::size_t> groups_;
};

}  // namespace

SparseBlocks Index::sparse_blocks(BlockRef after, std::optional<Span> within, bool spilled) {
  SparseBlocks answer;
  Search search(*impl_, answer, spilled);
  search.find_blocks(after, within);
  search.find_rows();
  return answer;
}

}  // namespace tq
