// The whole index against itself: see check.hpp.
#include "core/index/check.hpp"

#include <map>
#include <set>
#include <string>

#include "core/index/flow_account.hpp"
#include "core/index/impl.hpp"

namespace tq::index {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::corrupt, "the index contradicts itself: " + what + "; end this session and start a new one");
}

std::uint64_t number(std::string_view value) { return Reader(value).number<std::uint64_t>(); }

std::string_view from(std::string_view value, std::size_t at) {
  if (value.size() < at) corrupt("a record that is too short");
  return value.substr(at);
}

template <class Visit>
void for_all(const Txn& txn, Table table, Visit&& visit) {
  Cursor cursor(txn, table);
  for (bool found = cursor.seek(Key(table)); found; found = cursor.next()) visit(cursor.tail(), cursor.value());
}

struct Whole {
  std::map<std::uint64_t, std::uint64_t> spans;  // offset -> nbytes, of everything
  std::map<std::uint64_t, std::uint64_t> cells;  // block -> cells that runs name
  std::map<PartitionId, std::map<RowIndex, std::int64_t>> runs;
  std::set<std::uint32_t> slots;

  void add_span(std::uint64_t offset, std::uint64_t nbytes, const char* what) {
    require(nbytes > 0, std::string("an empty span: ") + what);
    require(spans.emplace(offset, nbytes).second, std::string("two spans at one offset: ") + what);
  }
  void add_slot(std::uint64_t slot) { require(slots.insert(static_cast<std::uint32_t>(slot)).second, "a slot used twice"); }
  bool covered(PartitionId partition, RowIndex row) const {
    const auto of = runs.find(partition);
    if (of == runs.end()) return false;
    auto after = of->second.upper_bound(row);
    return after != of->second.begin() && row < std::prev(after)->first + std::prev(after)->second;
  }
};

// The free spans of one region; in `region` what was found of it.
void check_free(const Txn& txn, Table by_offset_table, Table by_size_table, RegionBytes& region, Whole& whole) {
  std::map<std::uint64_t, std::uint64_t> by_size;
  for_all(txn, by_size_table, [&](auto key, auto) { by_size.emplace(key_u64(key, 8), key_u64(key, 0)); });
  std::map<std::uint64_t, std::uint64_t> by_offset;
  for_all(txn, by_offset_table, [&](auto key, auto value) { by_offset.emplace(key_u64(key, 0), number(value)); });
  require(by_size == by_offset, "free spans by size and by offset differ");
  std::uint64_t last_end = ~std::uint64_t{0};
  for (const auto& [offset, nbytes] : by_offset) {
    require(offset != last_end, "two adjacent free spans");
    require(Span{offset, nbytes}.spilled() == (by_offset_table == Table::spill_by_offset), "a free span in the other region's table");
    last_end = offset + nbytes;
    region.free_bytes += nbytes;
    whole.add_span(offset, nbytes, "free");
  }
}

// `found`: the sums of what the tables say, for check_blocks to go on with.
void check_space(const Txn& txn, Counters& found, Whole& whole) {
  check_free(txn, Table::extents_by_offset, Table::extents_by_size, found, whole);
  found.free_extents = whole.spans.size();
  check_free(txn, Table::spill_by_offset, Table::spill_by_size, found.spill, whole);
  for_all(txn, Table::pending, [&](auto key, auto value) {
    const Span span{key_u64(key, 8), number(value)};
    whole.add_span(span.offset, span.nbytes, "pending");
    (from(value, 16) == std::string_view("\1", 1) ? found.ahead_bytes : found.region(span).pending_bytes) += span.nbytes;
    whole.add_slot(BlockRef{number(from(value, 8))}.slot());
  });
  for_all(txn, Table::retired, [&](auto key, auto value) {
    const Span span{number(value), number(from(value, 8))};
    whole.add_span(span.offset, span.nbytes, "retired");
    found.region(span).retired_bytes += span.nbytes;
    whole.add_slot(BlockRef{key_u64(key, 0)}.slot());
  });
  for_all(txn, Table::free_slots, [&](auto key, auto) { whole.add_slot(key_u32(key, 0)); });
}

void check_region(const RegionBytes& found, const RegionBytes& counted, const std::string& of) {
  require(found.free_bytes == counted.free_bytes, "free bytes" + of);
  require(found.pending_bytes == counted.pending_bytes, "pending bytes" + of);
  require(found.retired_bytes == counted.retired_bytes, "retired bytes" + of);
  require(found.used_bytes == counted.used_bytes, "used bytes" + of);
  require(found.live_bytes == counted.live_bytes, "live bytes" + of);
  require(found.reserved_bytes == counted.reserved_bytes, "the spans do not reach the reserved end" + of);
}

void check_runs(const Txn& txn, Whole& whole) {
  RowIndex end = 0;
  PartitionId last = 0;
  for_all(txn, Table::runs, [&](auto key, auto) {
    const PartitionId partition = key_u32(key, 0);
    RunCursor at(txn, partition);
    require(at.seek(key_row(key, 4)), "a run that cannot be found");
    const RunView& run = at.run();
    require(run.start == key_row(key, 4), "a run that another one covers");
    require(partition != last || run.start >= end, "overlapping runs");
    last = partition;
    end = run.end();
    whole.runs[partition][run.start] = run.count;
    std::set<FieldId> fields;
    std::uint64_t last_ref = 0;
    run.for_each([&](BlockRef ref, std::uint32_t, std::size_t n, const char* ids) {
      require(ref.word > last_ref && n > 0, "entries of a run out of order");
      last_ref = ref.word;
      for (std::size_t i = 0; i < n; ++i) require(fields.insert(field_at(ids, i)).second, "a field twice in a run");
      whole.cells[ref.word] += n * static_cast<std::uint64_t>(run.count);
    });
  });
}

void check_blocks(const Txn& txn, const Counters& counters, Counters& found, Whole& whole) {
  std::map<PartitionId, std::uint64_t> live_of;
  for_all(txn, Table::blocks, [&](auto key, auto value) {
    const BlockRef ref{key_u64(key, 0)};
    const BlockRecord record = BlockRecord::parse(value);
    whole.add_span(record.span.offset, record.span.nbytes, "block");
    whole.add_slot(ref.slot());
    require(record.live_cells > 0, "a published block without a live cell");
    require(record.live_cells == whole.cells[ref.word],
            "block " + std::to_string(ref.word) + " says " + std::to_string(record.live_cells) + " live cells, runs say " +
                std::to_string(whole.cells[ref.word]));
    whole.cells.erase(ref.word);
    found.region(record.span).used_bytes += record.span.nbytes;
    found.region(record.span).live_bytes += record.live_bytes();
    live_of[record.partition] += record.held_bytes();
  });
  require(whole.cells.empty(), "cells that name no published block");
  for_all(txn, Table::partitions, [&](auto key, auto value) {
    require(PartitionRecord::parse(value).live_bytes == live_of[key_u32(key, 0)], "live bytes of a partition");
  });
  std::uint64_t headroom = 0;
  std::uint64_t headroom_end = 0;
  for (const auto& [offset, nbytes] : whole.spans) {
    const Span span{offset, nbytes};
    if (in_headroom(counters, span)) {
      require(offset - counters.headroom_begin >= headroom_end, "overlapping spans of the headroom");
      headroom_end = offset - counters.headroom_begin + nbytes;
      headroom += nbytes;
      continue;
    }
    std::uint64_t& end = found.region(span).reserved_bytes;
    require(offset == end + (span.spilled() ? spill_base : 0), "a hole or an overlap of spans at " + std::to_string(offset));
    end += nbytes;
  }
  check_region(found, counters, "");
  check_region(found.spill, counters.spill, " of the spill file");
  require(found.ahead_bytes == counters.ahead_bytes, "bytes reserved ahead");
  require(found.free_extents == counters.free_extents, "number of free extents");
  require(headroom == counters.headroom_taken && headroom_end <= counters.headroom_end && counters.headroom_end <= counters.headroom_bytes,
          "bytes of the headroom");
  require(whole.slots.size() == counters.next_slot && (whole.slots.empty() || *whole.slots.rbegin() < counters.next_slot),
          "slots that nobody has");
}

// Rows lie where the session gave them out, or where it never does.
void check_indexes(const Counters& counters, const Whole& whole) {
  const RowIndex own_end = own_rows(counters.first_row).end;
  require(counters.next_row <= own_end, "the next row is another session's");
  for (const auto& [partition, runs] : whole.runs) {
    std::int64_t rows = 0;
    for (const auto& [start, count] : runs) {
      rows += count;
      require(start + count <= counters.next_row || (start >= own_end && start + count <= counters.row_end()), "rows that nobody made");
    }
    require(rows <= counters.rows_made(), "more rows than were made");
  }
}

void check_rows(const Txn& txn, const Counters& counters, const Whole& whole, const KeyHasher* hasher) {
  std::int64_t rows = 0;
  std::uint64_t partitions = 0;
  for_all(txn, Table::partitions, [&](auto key, auto value) {
    const PartitionId id = key_u32(key, 0);
    const PartitionRecord record = PartitionRecord::parse(value);
    ++partitions;
    rows += record.rows;
    std::int64_t covered = 0;
    if (const auto of = whole.runs.find(id); of != whole.runs.end()) {
      for (const auto& [start, count] : of->second) covered += count;
    }
    std::int64_t doomed = 0;
    for (const Segment& segment : some_doomed(txn, id, INT64_MAX)) {
      doomed += segment.count;
      for (std::int64_t i = 0; i < segment.count; ++i) require(whole.covered(id, segment.row + i), "a doomed row without a run");
    }
    require(doomed == record.doomed_rows, "doomed rows");
    require(covered == record.rows + record.doomed_rows, "rows of a partition");
    const auto named = partition_by_name(txn, record.name);
    require(named && named->id == id, "a partition's name");
    std::int64_t keyed = 0;
    Cursor chunks(txn, Table::rowinfo);
    RowInfoReader info(txn, id);
    RowIndex end = 0;
    for (bool found = chunks.seek(Key(Table::rowinfo).u32(id)); found && key_u32(chunks.tail(), 0) == id; found = chunks.next()) {
      const RowIndex start = key_row(chunks.tail(), 4);
      const auto count = Reader(chunks.value()).number<std::uint32_t>();
      require(start >= end && may_exist(start), "overlapping chunks of keys and tags");
      end = start + count;
      for (RowIndex row = start; row < end; ++row) {
        require(info.seek(row), "a chunk that cannot be found");
        if (info.key().empty() && info.tags().empty()) continue;
        require(whole.covered(id, row), "keys or tags of a row that does not exist");
        if (info.key().empty()) continue;
        ++keyed;
        if (hasher == nullptr) continue;
        const auto value_of_hash = txn.get(Key(Table::key_rows).u32(id).u64((*hasher)(info.key())));
        require(value_of_hash.has_value(), "a key without its hash");
        bool names_row = false;
        Reader in(*value_of_hash);
        while (in.left() > 0) names_row = in.number<std::uint64_t>() == static_cast<std::uint64_t>(row) || names_row;
        require(names_row, "a hash that does not name the row of its key");
      }
    }
    require(keyed == record.keyed_rows, "keyed rows");
    std::int64_t hashed = 0;
    Cursor hashes(txn, Table::key_rows);
    for (bool found = hashes.seek(Key(Table::key_rows).u32(id)); found && key_u32(hashes.tail(), 0) == id; found = hashes.next()) {
      hashed += static_cast<std::int64_t>(hashes.value().size() / 8);
    }
    require(hashed == keyed, "hashes of keys that are gone");
  });
  require(rows == counters.rows, "rows");
  require(partitions == counters.partitions, "partitions");
}

// What limits are held against is what a look at every row finds.
void check_flow(const Txn& txn) {
  for_all(txn, Table::partitions, [&](auto key, auto value) {
    const Partition partition{key_u32(key, 0), PartitionRecord::parse(value)};
    const auto record = flow_record(txn, partition);
    if (!record) return require(!txn.get(Key(Table::flow).u32(partition.id)), "limits of a partition that says it has none");
    const FlowCount count = count_flow(txn, partition, record->limits);
    require(record->unconsumed == count.unconsumed, "rows that limits count");
    std::map<std::int64_t, std::int64_t> versions;
    Cursor stored(txn, Table::row_versions);
    for (bool found = stored.seek(Key(Table::row_versions).u32(partition.id)); found && key_u32(stored.tail(), 0) == partition.id;
         found = stored.next()) {
      versions[static_cast<std::int64_t>(key_u64(stored.tail(), 4))] = static_cast<std::int64_t>(number(stored.value()));
    }
    require(versions == count.versions, "rows by version of the weights");
  });
}

// Nothing is kept of a partition that is gone (cleared, its records removed).
void check_orphans(const Txn& txn) {
  const std::pair<Table, const char*> tables[] = {
      {Table::runs, "rows"},          {Table::rowinfo, "keys and tags"}, {Table::key_rows, "hashes of keys"},
      {Table::doomed_rows, "tombstones"}, {Table::tasks, "a task"},      {Table::consumed, "marks"},
      {Table::claims, "a claim"}, {Table::row_versions, "versions"},     {Table::partition_fields, "fields"}};
  for (const auto& [table, what] : tables) {
    for_all(txn, table, [&, what = what](auto key, auto) {
      const PartitionId id = key_u32(key, 0);
      require(txn.get(Key(Table::partitions).u32(id)) || txn.get(Key(Table::doomed_partitions).u32(id)),
              std::string(what) + " of a partition that is gone");
    });
  }
  for_all(txn, Table::partition_names, [&](auto, auto value) {
    require(txn.get(Key(Table::partitions).u32(Reader(value).number<PartitionId>())).has_value(),
            "the name of a partition that is gone");
  });
}

}  // namespace

void check_index(Env& env, bool strong_hash) {
  const ReadTxn txn(env);
  const auto counters_value = txn.get(Key(Table::counters));
  const auto format_value = txn.get(Key(Table::format));
  require(counters_value && format_value, "its counters or its format are missing");
  const Counters counters = Counters::parse(*counters_value);
  const Format format = Format::parse(*format_value);
  KeyHasher hasher;
  hasher.seed[0] = format.hash_seed[0];
  hasher.seed[1] = format.hash_seed[1];
  Whole whole;
  Counters found;
  check_space(txn, found, whole);
  check_runs(txn, whole);
  check_blocks(txn, counters, found, whole);
  check_indexes(counters, whole);
  check_rows(txn, counters, whole, strong_hash ? &hasher : nullptr);
  check_flow(txn);
  check_orphans(txn);
  check_requests(txn, counters);
}

}  // namespace tq::index

namespace tq {

std::vector<BlockRef> Index::check() {
  impl_->env->ensure_own();
  index::check_index(*impl_->env, true);
  const index::ReadTxn txn(*impl_->env);
  std::vector<BlockRef> blocks;
  index::for_all(txn, index::Table::blocks, [&](auto key, auto) { blocks.push_back(BlockRef{index::key_u64(key, 0)}); });
  return blocks;
}

}  // namespace tq
