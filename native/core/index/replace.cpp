// All rows of the session replaced by others in one commit: the loading of a checkpoint.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "core/index/flow_account.hpp"
#include "core/index/impl.hpp"
#include "core/index/saved_check.hpp"
#include "core/index/task_records.hpp"
#include "core/pause.hpp"

namespace tq {
namespace {

using namespace index;

// The body of that transaction. What it is given was checked.
class Replacement {
 public:
  Replacement(Index::Impl& impl, const SavedSession& saved, const std::vector<Reservation>& reservations, OwnerId owner,
              const std::vector<HashedKeys>& keys)
      : impl_(impl), saved_(saved), reservations_(reservations), owner_(owner), keys_(keys) {}

  void run(WriteTxn& txn) {
    doom_all(txn);
    for (std::size_t p = 0; p < saved_.partitions.size(); ++p) make_partition(txn, p);
    make_blocks(txn);
    make_runs(txn);
    name_rows(txn);
    make_tasks(txn);
    spend_rows(txn.counters);
    txn.put(Key(Table::counters), txn.counters.view());  // who lists rows takes none that the counters do not know
    for (Partition& partition : partitions_) {
      // What was loaded may be more than the limits of this session allow: then puts meet them, and the load does not.
      recount_flow(txn, partition);
      store_partition(txn, partition);
    }
  }

 private:
  // No index of the checkpoint is given out again. What was saved by another node has no say about the others of this one.
  void spend_rows(Counters& counters) const {
    const RowSpan own = own_rows(counters.first_row);
    const auto spend = [&](RowIndex first, RowIndex end) {
      if (first < own.end && end > own.first) counters.next_row = std::max(counters.next_row, std::min(end, own.end));
    };
    if (saved_.next_row > own.first && saved_.next_row <= own.end) spend(own.first, saved_.next_row);
    for (const SavedRun& run : saved_.runs) {
      spend(run.first, run.first + run.count);
      counters.other_rows += run.count;
      counters.other_end = std::max(counters.other_end, run.first + run.count);
    }
    for (const SavedTask& task : saved_.tasks) {
      for (const RowRange& range : task.consumed) spend(range.first, range.first + range.count);
    }
  }

  void doom_all(WriteTxn& txn) {
    std::vector<Partition> all;
    {
      Cursor cursor(txn, Table::partitions);
      for (bool found = cursor.seek(Key(Table::partitions)); found; found = cursor.next()) {
        all.push_back({key_u32(cursor.tail(), 0), PartitionRecord::parse(cursor.value())});
      }
    }
    for (const Partition& partition : all) doom_partition(txn, partition);
  }

  void make_partition(WriteTxn& txn, std::size_t number) {
    Partition partition = partition_to_write(txn, saved_.partitions[number]);
    for (const std::string& name : saved_.known_fields[number]) {
      txn.put(Key(Table::partition_fields).u32(partition.id).u32(field_id(txn, name)), {});
    }
    partitions_.push_back(std::move(partition));
  }

  FieldId field_id(WriteTxn& txn, const std::string& name) {
    const auto [at, fresh] = field_ids_.emplace(name, FieldId{0});
    if (fresh) at->second = ensure_field(txn, impl_.caches->fields, name);
    return at->second;
  }

  void make_blocks(WriteTxn& txn) {
    std::vector<std::uint64_t> live_cells(saved_.blocks.size());
    std::size_t cell = 0;
    for (const SavedRun& run : saved_.runs) {
      for (std::int64_t i = 0; i < run.n_cells; ++i, ++cell) {
        const SavedCell& at = saved_.cells[cell];
        live_cells[static_cast<std::size_t>(at.block)] += static_cast<std::uint64_t>(at.n_fields * run.count);
      }
    }
    for (std::size_t b = 0; b < saved_.blocks.size(); ++b) {
      const SavedBlock& block = saved_.blocks[b];
      if (!take_pending(txn, owner_, reservations_[b])) {
        throw Error(ErrorCode::invalid, "space reserved for the load is no longer its own; load again");
      }
      std::vector<FieldId> ids;
      for (const FieldLayout& field : block.fields) ids.push_back(field_id(txn, field.name));
      Partition& partition = partitions_[static_cast<std::size_t>(block.partition)];
      for (const FieldId id : ids) txn.put(Key(Table::partition_fields).u32(partition.id).u32(id), {});
      BlockRecord record;
      record.span = reservations_[b].span;
      record.n_rows = static_cast<std::uint64_t>(block.n_rows);
      record.cells = record.n_rows * ids.size();
      record.live_cells = live_cells[b];
      record.partition = partition.id;
      record.elsewhere_bytes = block.elsewhere_bytes;
      add_block(txn, reservations_[b].block, record, encode_layouts(block.fields, ids), partition.record.name);
      partition.record.live_bytes += record.held_bytes();
      ids_.push_back(std::move(ids));
    }
  }

  struct Entry {
    std::uint64_t ref;
    std::uint32_t block_row;
    std::vector<FieldId> fields;
  };

  void make_runs(WriteTxn& txn) {
    std::size_t cell = 0;
    std::size_t field = 0;
    std::vector<Entry> entries;
    Writer out;
    for (const SavedRun& run : saved_.runs) {
      entries.clear();
      for (std::int64_t i = 0; i < run.n_cells; ++i, ++cell) {
        const SavedCell& at = saved_.cells[cell];
        const auto block = static_cast<std::size_t>(at.block);
        Entry& entry = entries.emplace_back();
        entry.ref = reservations_[block].block.word;
        entry.block_row = static_cast<std::uint32_t>(at.block_row);
        for (std::int64_t f = 0; f < at.n_fields; ++f) entry.fields.push_back(ids_[block][static_cast<std::size_t>(saved_.cell_fields[field++])]);
        std::sort(entry.fields.begin(), entry.fields.end());
      }
      std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.ref < b.ref; });
      out.clear();
      out.number(static_cast<std::uint32_t>(run.count)).number(static_cast<std::uint16_t>(entries.size()));
      for (const Entry& entry : entries) {
        out.number(entry.ref).number(entry.block_row).number(static_cast<std::uint16_t>(entry.fields.size()));
        out.bytes({reinterpret_cast<const char*>(entry.fields.data()), entry.fields.size() * sizeof(FieldId)});
      }
      Partition& partition = partitions_[static_cast<std::size_t>(run.partition)];
      txn.put(Key(Table::runs).u32(partition.id).row(run.first), out.view());
      partition.record.rows += run.count;
      txn.counters.rows += run.count;
    }
  }

  void name_rows(WriteTxn& txn) {
    std::size_t at = 0;
    for (std::size_t p = 0; p < partitions_.size(); ++p) {
      Partition& partition = partitions_[p];
      std::vector<RowUpdate> updates;
      std::vector<RowIndex> keyed;
      for (; at < saved_.rows.size() && saved_.rows[at].partition == static_cast<std::int64_t>(p); ++at) {
        updates.push_back({saved_.rows[at].row, saved_.keys.at(at), saved_.tags.at(at), false});
        if (!updates.back().key.empty()) keyed.push_back(saved_.rows[at].row);
      }
      RowInfoWriter(txn, partition.id).apply(updates);
      add_keys(txn, partition.id, keys_[p], keyed, {0, row_limit});
      partition.record.keyed_rows += static_cast<std::int64_t>(keyed.size());
    }
  }

  void make_tasks(WriteTxn& txn) {
    for (const SavedTask& task : saved_.tasks) {
      const PartitionId partition = partitions_[static_cast<std::size_t>(task.partition)].id;
      TaskRecord record;
      record.id = txn.counters.next_task++;
      // No version that the task had before: a commit computed on the rows that were replaced is refused.
      record.version = std::uint64_t{partition} << 32;
      record.sampler_state = task.sampler_state;
      txn.put(task_key(partition, task.name), record.encode());
      std::vector<Segment> marks;
      for (const RowRange& range : task.consumed) marks.push_back({range.first, range.count, 0, 0});
      set_rows(txn, marks_of(partition, record.id), marks);
    }
  }

  Index::Impl& impl_;
  const SavedSession& saved_;
  const std::vector<Reservation>& reservations_;
  OwnerId owner_;
  const std::vector<HashedKeys>& keys_;  // of each partition
  std::map<std::string, FieldId> field_ids_;
  std::vector<Partition> partitions_;
  std::vector<std::vector<FieldId>> ids_;  // of each block's fields
};

// Refuses what is no session, or not in these blocks; the keys of each partition.
std::vector<HashedKeys> checked_keys(Index::Impl& impl, const SavedSession& saved, const std::vector<Reservation>& reservations) {
  check_saved(saved, reservations);
  // At the least 40 bytes of the index for 4,096 of them (bitmap.hpp): tables that name more would only hold the write lock
  // until it is full.
  std::uint64_t left = impl.env->total_pages() * impl.env->page_nbytes() / 40 * RowBitmap::n_rows;
  for (const SavedTask& task : saved.tasks) {
    for (const RowRange& range : task.consumed) {
      const auto count = static_cast<std::uint64_t>(range.count);
      if (count > left) throw Error(ErrorCode::index_full, "the index has no room for so many consumed rows");
      left -= count;
    }
  }
  // Hashed and checked before the write lock is taken.
  std::vector<std::vector<std::string>> texts(saved.partitions.size());
  for (std::size_t i = 0; i < saved.rows.size(); ++i) {
    const std::string_view key = saved.keys.at(i);
    if (!key.empty()) texts[static_cast<std::size_t>(saved.rows[i].partition)].emplace_back(key);
  }
  std::vector<HashedKeys> keys;
  keys.reserve(texts.size());
  for (const std::vector<std::string>& of_partition : texts) check_new_keys(keys.emplace_back(impl.hasher, of_partition));
  return keys;
}

}  // namespace

void Index::check_replacement(const SavedSession& saved, const std::vector<Reservation>& reservations) {
  checked_keys(*impl_, saved, reservations);
}

void Index::replace(const SavedSession& saved, const std::vector<Reservation>& reservations, OwnerId owner) {
  const std::vector<HashedKeys> keys = checked_keys(*impl_, saved, reservations);
  impl_->write_asked(Room::put, [&](WriteTxn& txn) {
    Replacement(*impl_, saved, reservations, owner, keys).run(txn);
    TQ_PAUSE("index.replace.before_commit");
    return true;
  });
  TQ_PAUSE("index.replace.after_commit");
}

std::vector<Reservation> Index::split(const Reservation& whole, OwnerId owner, const std::vector<std::uint64_t>& sizes) {
  return impl_->write(Room::put, [&](WriteTxn& txn) {
    if (!take_pending(txn, owner, whole)) throw Error(ErrorCode::invalid, "split: the space is not reserved by this process");
    give_slot(txn, whole.block.slot());
    std::vector<Reservation> parts;
    Span left = whole.span;
    for (const std::uint64_t nbytes : sizes) {
      if (nbytes > left.nbytes || nbytes % small_nbytes != 0) throw Error(ErrorCode::invalid, "split: parts that do not fit");
      const std::uint32_t slot = take_slot(txn, impl_->format.max_slots);
      parts.push_back({{left.offset, nbytes}, BlockRef::make(txn.counters.next_generation++, slot)});
      add_pending(txn, owner, parts.back());
      left = {left.offset + nbytes, left.nbytes - nbytes};
    }
    give_extent(txn, left);
    return parts;
  });
}

}  // namespace tq
