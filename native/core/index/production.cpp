// Which rows have which fields.
#include <set>

#include "core/index/impl.hpp"

namespace tq {
namespace {

using namespace index;

// For a run: one byte a requested field, 1 where the run has it.
class Readiness {
 public:
  Readiness(const Txn& txn, FieldNames& names, const std::vector<std::string>& fields) : ready_(fields.size()) {
    for (std::size_t f = 0; f < fields.size(); ++f) {
      if (const auto id = names.id(txn, fields[f])) positions_.emplace_back(*id, f);
    }
    std::sort(positions_.begin(), positions_.end());
  }

  const std::vector<std::uint8_t>& of(const RunView& run) {
    std::fill(ready_.begin(), ready_.end(), std::uint8_t{0});
    run.for_each([&](BlockRef, std::uint32_t, std::size_t n_fields, const char* ids) {
      auto wanted = positions_.begin();  // both ascend by id
      for (std::size_t i = 0; i < n_fields; ++i) {
        const FieldId id = field_at(ids, i);
        while (wanted != positions_.end() && wanted->first < id) ++wanted;
        for (; wanted != positions_.end() && wanted->first == id; ++wanted) ready_[wanted->second] = 1;
      }
    });
    return ready_;
  }

 private:
  std::vector<std::pair<FieldId, std::size_t>> positions_;
  std::vector<std::uint8_t> ready_;
};

void append(std::vector<std::uint8_t>& all, const std::vector<std::uint8_t>& row) { all.insert(all.end(), row.begin(), row.end()); }

}  // namespace

ProductionStatus Index::production(const std::string& name, const std::vector<std::string>& fields,
                                   const std::optional<std::vector<RowIndex>>& indexes) {
  const ReadTxn txn(*impl_->env);
  ProductionStatus status;
  status.field_known.resize(fields.size());
  if (indexes) status.indexes = *indexes;
  const auto partition = partition_by_name(txn, name);
  if (!partition) {
    status.ready.resize(status.indexes.size() * fields.size());
    return status;
  }
  status.partition_found = true;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto id = impl_->caches->fields.id(txn, fields[f]);
    status.field_known[f] = id && partition_had_field(txn, partition->id, *id);
  }
  Readiness readiness(txn, impl_->caches->fields, fields);
  DoomedRows doomed(txn, *partition);
  RunCursor runs(txn, partition->id);
  if (!indexes) {
    for (bool found = runs.first(); found; found = runs.next()) {
      const std::vector<std::uint8_t>& row_ready = readiness.of(runs.run());
      doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex first, std::int64_t count) {
        for (RowIndex row = first; row < first + count; ++row) {
          status.indexes.push_back(row);
          append(status.ready, row_ready);
        }
      });
    }
    return status;
  }
  const std::vector<std::uint8_t> not_there(fields.size());
  std::vector<std::uint8_t> row_ready;
  std::optional<RowIndex> of_run;  // whose readiness `row_ready` is
  status.ready.reserve(indexes->size() * fields.size());
  for (const RowIndex row : *indexes) {
    if (row < 0 || !runs.seek(row) || runs.run().start > row || doomed.contains(row)) {
      append(status.ready, not_there);
      continue;
    }
    if (of_run != runs.run().start) row_ready = readiness.of(runs.run());
    of_run = runs.run().start;
    append(status.ready, row_ready);
  }
  return status;
}

std::vector<std::string> Index::field_names(const std::string& name) {
  const ReadTxn txn(*impl_->env);
  const auto partition = partition_by_name(txn, name);
  if (!partition) return {};
  std::set<FieldId> ids;
  DoomedRows doomed(txn, *partition);
  RunCursor runs(txn, partition->id);
  for (bool found = runs.first(); found; found = runs.next()) {
    bool lives = !doomed.any();
    if (!lives) doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex, std::int64_t) { lives = true; });
    if (!lives) continue;
    runs.run().for_each([&](BlockRef, std::uint32_t, std::size_t n_fields, const char* in_run) {
      for (std::size_t i = 0; i < n_fields; ++i) ids.insert(field_at(in_run, i));
    });
  }
  std::vector<std::string> names;
  for (const FieldId id : ids) names.push_back(impl_->caches->fields.name(txn, id));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tq
