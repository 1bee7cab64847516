// Rows x fields at one snapshot: which stretch of which block holds them.
#include <numeric>

#include "core/index/impl.hpp"

namespace tq {

using namespace index;

std::vector<RowIndex> Index::Impl::find_rows(const Txn& txn, const Partition& partition, const RowSelector& rows,
                                             DoomedRows& doomed) const {
  switch (rows.by) {
    case RowsBy::index:
      return rows.indexes;
    case RowsBy::key:
      return look_up_keys(txn, partition.id, HashedKeys(hasher, rows.keys), doomed);
    case RowsBy::fresh:
      break;
  }
  throw Error(ErrorCode::invalid, "rows that exist are addressed by index or by key");
}

Resolution Index::Impl::resolve_in(const Txn& txn, const std::string& name, const RowSelector& rows,
                                   const std::optional<std::vector<std::string>>& fields) {
  Resolution answer;
  const auto partition = partition_by_name(txn, name);
  if (!partition) {
    // Nothing of it is there: every row is gone, every field asked for is without pieces.
    if (rows.by == RowsBy::index) answer.indexes = rows.indexes;
    if (rows.by == RowsBy::key) answer.indexes.assign(rows.keys.size(), -1);
    answer.gone.resize(answer.indexes.size());
    std::iota(answer.gone.begin(), answer.gone.end(), std::int64_t{0});
    if (fields) answer.fields = *fields;
    answer.piece_lists.resize(1);
    answer.field_pieces.assign(answer.fields.size(), 0);
    answer.layouts.resize(answer.fields.size());
    return answer;
  }
  answer.partition_found = true;
  answer.partition_id = partition->id;
  answer.partition_version = partition->record.version;
  fill_answer(txn, *partition, rows, fields, answer);
  return answer;
}

Resolution Index::resolve(const std::string& partition, const RowSelector& rows,
                          const std::optional<std::vector<std::string>>& fields, bool in_write_txn,
                          const std::function<void(const Resolution&)>& with_lease) {
  if (in_write_txn) {
    // Nothing can retire a block before the transaction ends, so leases stored in `with_lease` are certain to hold.
    const WriteTxn txn(*impl_->env, impl_->gate);
    Resolution answer = impl_->resolve_in(txn, partition, rows, fields);
    if (with_lease) with_lease(answer);
    return answer;
  }
  const ReadTxn txn(*impl_->env);
  return impl_->resolve_in(txn, partition, rows, fields);
}

}  // namespace tq
