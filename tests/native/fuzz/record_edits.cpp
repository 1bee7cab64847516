#include "fuzz/record_edits.hpp"

#include <lmdb.h>

namespace tq_fuzz {
namespace {

using tq::index::Env;

constexpr std::size_t max_key_nbytes = 511;

void write(Env& env, MDB_txn* txn, const Record& record) {
  MDB_val key{record.key.size(), const_cast<char*>(record.key.data())};
  MDB_val value{record.value.size(), const_cast<char*>(record.value.data())};
  if (record.key.empty() || record.key.size() > max_key_nbytes) return;
  static_cast<void>(mdb_put(txn, env.dbi(record.table), &key, &value, 0));
}

}  // namespace

std::vector<Record> RecordEdits::records(Env& env, MDB_txn* txn) const {
  std::vector<Record> found;
  for (const tq::index::Table table : tables_) {
    MDB_cursor* cursor = nullptr;
    require(mdb_cursor_open(txn, env.dbi(table), &cursor) == 0, "a cursor opens");
    MDB_val key;
    MDB_val value;
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
      Record record{table, {static_cast<char*>(key.mv_data), key.mv_size}, {static_cast<char*>(value.mv_data), value.mv_size}};
      if (wanted_(record)) found.push_back(std::move(record));
    }
    mdb_cursor_close(cursor);
  }
  return found;
}

std::size_t RecordEdits::count() const {
  const auto env = Env::open(fixture_.directory());
  MDB_txn* txn = nullptr;
  require(mdb_txn_begin(env->raw(), nullptr, MDB_RDONLY, &txn) == 0, "a transaction begins");
  const std::size_t n = records(*env, txn).size();
  mdb_txn_abort(txn);
  return n;
}

void RecordEdits::apply(Input& in) const {
  const auto env = Env::open(fixture_.directory());
  MDB_txn* txn = nullptr;
  require(mdb_txn_begin(env->raw(), nullptr, 0, &txn) == 0, "a transaction begins");
  const std::vector<Record> all = records(*env, txn);
  for (int edits = 0; edits < most_ && !in.empty(); ++edits) {
    Record record = all[in.below(all.size())];
    switch (in.number<std::uint8_t>() % 8) {
      case 0: {  // gone
        MDB_val key{record.key.size(), record.key.data()};
        static_cast<void>(mdb_del(txn, env->dbi(record.table), &key, nullptr));
        continue;
      }
      case 1:  // under another key, too
        edit_key_(record.key, in);
        break;
      case 2:  // another record's bytes
        record.value = all[in.below(all.size())].value;
        break;
      default:
        edit(record.value, in);
    }
    write(*env, txn, record);
  }
  require(mdb_txn_commit(txn) == 0, "the edits are committed");
}

}  // namespace tq_fuzz
