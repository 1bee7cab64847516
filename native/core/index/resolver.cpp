// From runs to pieces: the middle part of a resolve, inside the caller's transaction.
#include <string_view>
#include <unordered_map>

#include "core/index/impl.hpp"

namespace tq {
namespace {

using namespace index;

constexpr std::int32_t none = -1;

// Requested rows [position, position + count) are rows [offset, offset + count) of run `run`.
struct Hit {
  std::int64_t position;
  std::int64_t count;
  std::int64_t offset;
  std::size_t run;
};

// One answer in the making. Views into pages stay valid: nothing is written in a transaction that resolves.
class Resolver {
 public:
  Resolver(Index::Impl& impl, const Txn& txn, const Partition& partition, Resolution& answer)
      : impl_(impl), txn_(txn), partition_(partition), doomed_(txn, partition), answer_(answer) {}

  void run(const RowSelector& rows, const std::optional<std::vector<std::string>>& fields) {
    answer_.indexes = impl_.find_rows(txn_, partition_, rows, doomed_);
    find_runs();
    choose_fields(fields);
    fill_columns();
    group_fields();
    for (const std::size_t field : group_leaders_) answer_.piece_lists.push_back(pieces_of(field));
    describe_blocks();
  }

 private:
  // Every run that a requested row lies in, once, and where the rows lie in it.
  void find_runs() {
    std::vector<Stretch> stretches = consecutive(answer_.indexes);
    RunCursor cursor(txn_, partition_.id);
    bool have = false;  // runs_.back() is the cursor's
    bool in_order = true;
    for (const Stretch& stretch : stretches) {
      for (std::int64_t done = 0; done < stretch.count;) {
        const RowIndex row = stretch.row + done;
        if (!cursor.seek(row)) {
          miss(stretch.position + done, stretch.count - done);
          break;
        }
        if (cursor.run().start > row) {
          const std::int64_t gap = std::min(cursor.run().start - row, stretch.count - done);
          miss(stretch.position + done, gap);
          done += gap;
          continue;
        }
        if (!have || runs_.back().start != cursor.run().start) runs_.push_back(cursor.run());
        have = true;
        const RunView& run = runs_.back();
        const std::int64_t count = std::min(run.end() - row, stretch.count - done);
        const std::int64_t position = stretch.position + done;
        RowIndex expected = row;
        doomed_.for_each_living(row, count, [&](RowIndex first, std::int64_t n) {
          miss(position + (expected - row), first - expected);
          in_order = in_order && (hits_.empty() || hits_.back().position < position);
          hits_.push_back({position + (first - row), n, first - run.start, runs_.size() - 1});
          expected = first + n;
        });
        miss(position + (expected - row), row + count - expected);
        done += count;
      }
    }
    if (!in_order) std::sort(hits_.begin(), hits_.end(), [](const Hit& a, const Hit& b) { return a.position < b.position; });
    std::sort(answer_.gone.begin(), answer_.gone.end());
  }

  struct Stretch {
    RowIndex row;
    std::int64_t count;
    std::int64_t position;
  };
  // Stretches of consecutive rows, ascending by row, so that the runs are walked in one direction.
  std::vector<Stretch> consecutive(const std::vector<RowIndex>& rows) {
    std::vector<Stretch> stretches;
    bool ascending = true;
    for (std::size_t i = 0; i < rows.size();) {
      if (!may_exist(rows[i])) {
        miss(static_cast<std::int64_t>(i), 1);
        ++i;
        continue;
      }
      const RowIndex first = rows[i];
      const std::size_t end = i + std::min(rows.size() - i, static_cast<std::size_t>(row_limit - first));
      std::size_t next = i + 1;
      while (next < end && rows[next] == first + static_cast<RowIndex>(next - i)) ++next;
      ascending = ascending && (stretches.empty() || stretches.back().row <= first);
      stretches.push_back({first, static_cast<std::int64_t>(next - i), static_cast<std::int64_t>(i)});
      i = next;
    }
    if (!ascending) {
      std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) { return a.row < b.row; });
    }
    return stretches;
  }

  void miss(std::int64_t position, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) answer_.gone.push_back(position + i);
  }

  void choose_fields(const std::optional<std::vector<std::string>>& fields) {
    if (fields) {
      answer_.fields = *fields;
      for (const std::string& name : *fields) ids_.push_back(impl_.caches->fields.id(txn_, name));
      return;
    }
    std::vector<FieldId> seen;
    for (const RunView& run : runs_) {
      run.for_each([&](BlockRef, std::uint32_t, std::size_t n, const char* in_run) {
        for (std::size_t i = 0; i < n; ++i) {
          const FieldId id = field_at(in_run, i);
          if (id > max_field_id) corrupt("a cell of a field with an impossible number");
          if (id >= is_seen_.size()) is_seen_.resize(id + std::size_t{1});
          if (!is_seen_[id]) seen.push_back(id);
          is_seen_[id] = true;
        }
      });
    }
    std::vector<std::pair<std::string, FieldId>> named;
    for (const FieldId id : seen) named.emplace_back(impl_.caches->fields.name(txn_, id), id);
    std::sort(named.begin(), named.end());
    for (auto& [name, id] : named) {
      answer_.fields.push_back(std::move(name));
      ids_.push_back(id);
    }
  }

  // columns_[f * n_runs + r]: the entry that holds requested field f in run r, or none.
  void fill_columns() {
    const std::size_t n_runs = runs_.size();
    columns_.assign(ids_.size() * n_runs, none);
    FieldId highest = 0;
    for (const auto& id : ids_) highest = std::max(highest, id.value_or(0));
    // A field asked for twice points on to its next position.
    std::vector<std::int32_t> first_position(highest + std::size_t{1}, none);
    std::vector<std::int32_t> next_position(ids_.size(), none);
    for (std::size_t f = ids_.size(); f-- > 0;) {
      if (!ids_[f]) continue;
      next_position[f] = first_position[*ids_[f]];
      first_position[*ids_[f]] = static_cast<std::int32_t>(f);
    }
    for (std::size_t r = 0; r < n_runs; ++r) {
      runs_[r].for_each([&](BlockRef ref, std::uint32_t block_row, std::size_t n, const char* in_run) {
        const auto entry = static_cast<std::int32_t>(entries_.size());
        entries_.push_back({ref, block_row, none});
        for (std::size_t i = 0; i < n; ++i) {
          const FieldId id = field_at(in_run, i);
          if (id > highest) continue;
          for (std::int32_t f = first_position[id]; f != none; f = next_position[static_cast<std::size_t>(f)]) {
            columns_[static_cast<std::size_t>(f) * n_runs + r] = entry;
          }
        }
      });
    }
  }

  // Fields with the same entry in every run have the same pieces.
  void group_fields() {
    const std::size_t n_runs = runs_.size();
    std::unordered_map<std::string_view, std::size_t> groups;
    answer_.field_pieces.reserve(ids_.size());
    for (std::size_t f = 0; f < ids_.size(); ++f) {
      const std::string_view column(reinterpret_cast<const char*>(columns_.data() + f * n_runs), n_runs * sizeof(std::int32_t));
      const auto [at, fresh] = groups.emplace(column, group_leaders_.size());
      if (fresh) group_leaders_.push_back(f);
      answer_.field_pieces.push_back(at->second);
    }
  }

  std::vector<Piece> pieces_of(std::size_t field) {
    std::vector<Piece> pieces;
    const std::int32_t* column = columns_.data() + field * runs_.size();
    for (const Hit& hit : hits_) {
      if (column[hit.run] == none) continue;
      Entry& entry = entries_[static_cast<std::size_t>(column[hit.run])];
      if (entry.block == none) entry.block = block_number(entry.ref);
      const std::int64_t block_row = entry.block_row + hit.offset;
      if (!pieces.empty()) {
        Piece& last = pieces.back();
        if (last.block == entry.block && last.first + last.count == hit.position && last.block_row + last.count == block_row) {
          last.count += hit.count;
          continue;
        }
      }
      pieces.push_back({hit.position, hit.count, entry.block, block_row});
    }
    return pieces;
  }

  std::int32_t block_number(BlockRef ref) {
    const auto [at, fresh] = block_numbers_.emplace(ref.word, static_cast<std::int32_t>(refs_.size()));
    if (fresh) refs_.push_back(ref);
    return at->second;
  }

  void describe_blocks() {
    const auto parsed = impl_.caches->layouts.blocks(txn_, impl_.caches->fields, refs_);
    for (const auto& block : parsed) {
      impl_.check_span(block->span);
      answer_.blocks.push_back({block->ref, block->span, block->n_rows});
    }
    for (const std::vector<Piece>& pieces : answer_.piece_lists) {
      for (const Piece& piece : pieces) {
        const std::int64_t n_rows = answer_.blocks[static_cast<std::size_t>(piece.block)].n_rows;
        if (piece.count > n_rows || piece.block_row > n_rows - piece.count) corrupt("a cell beyond the rows of its block");
      }
    }
    answer_.layouts.resize(ids_.size());
    for (std::size_t f = 0; f < ids_.size(); ++f) {
      auto& layouts = answer_.layouts[f];
      layouts.resize(parsed.size());
      std::int32_t hint = none;
      for (std::size_t b = 0; ids_[f] && b < parsed.size(); ++b) {
        const std::int32_t at = parsed[b]->find(*ids_[f], hint);
        if (at == none) continue;
        hint = at;
        // Shares the block's ownership: no allocation a field.
        layouts[b] = std::shared_ptr<const FieldLayout>(parsed[b], &parsed[b]->layouts[static_cast<std::size_t>(at)]);
      }
      for (const Piece& piece : answer_.piece_lists[answer_.field_pieces[f]]) {
        if (!layouts[static_cast<std::size_t>(piece.block)]) corrupt("a cell of a field that its block lacks");
      }
    }
  }

  struct Entry {
    BlockRef ref;
    std::int64_t block_row;
    std::int32_t block;  // number in the answer, given on first use
  };
  Index::Impl& impl_;
  const Txn& txn_;
  const Partition& partition_;
  DoomedRows doomed_;
  Resolution& answer_;
  std::vector<RunView> runs_;
  std::vector<Hit> hits_;
  std::vector<std::optional<FieldId>> ids_;  // of the answer's fields; nullopt: the session never had it
  std::vector<bool> is_seen_;
  std::vector<std::int32_t> columns_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> group_leaders_;  // one field of each group
  std::unordered_map<std::uint64_t, std::int32_t> block_numbers_;
  std::vector<BlockRef> refs_;
};

}  // namespace

void Index::Impl::fill_answer(const Txn& txn, const Partition& partition, const RowSelector& rows,
                              const std::optional<std::vector<std::string>>& fields, Resolution& answer) {
  Resolver(*this, txn, partition, answer).run(rows, fields);
}

}  // namespace tq
