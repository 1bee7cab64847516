// Records of a whole index, edited behind its back: then every call of it. LMDB itself is in order.
#include <lmdb.h>

#include "core/index/txn.hpp"
#include "fuzz/index_fixture.hpp"

namespace {

using namespace tq_fuzz;
using tq::index::Table;

struct Record {
  Table table;
  std::string key;
  std::string value;
};

constexpr Table tables_of_databases[] = {Table::format, Table::tasks, Table::blocks, Table::runs, Table::rowinfo, Table::key_rows};

std::vector<Record> records_of(tq::index::Env& env, MDB_txn* txn) {
  std::vector<Record> records;
  for (const Table table : tables_of_databases) {
    MDB_cursor* cursor = nullptr;
    require(mdb_cursor_open(txn, env.dbi(table), &cursor) == 0, "a cursor opens");
    MDB_val key;
    MDB_val value;
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
      records.push_back({table, {static_cast<char*>(key.mv_data), key.mv_size}, {static_cast<char*>(value.mv_data), value.mv_size}});
    }
    mdb_cursor_close(cursor);
  }
  return records;
}

IndexFixture& fixture() {
  static IndexFixture instance;
  return instance;
}

void write(tq::index::Env& env, MDB_txn* txn, const Record& record) {
  MDB_val key{record.key.size(), const_cast<char*>(record.key.data())};
  MDB_val value{record.value.size(), const_cast<char*>(record.value.data())};
  if (record.key.empty() || record.key.size() > 511) return;
  static_cast<void>(mdb_put(txn, env.dbi(record.table), &key, &value, 0));
}

void run(std::string_view input) {
  IndexFixture& made = fixture();
  made.restore();
  Input in(input);
  const auto order = in.number<std::uint8_t>();
  {
    const auto env = tq::index::Env::open(made.directory());
    MDB_txn* txn = nullptr;
    require(mdb_txn_begin(env->raw(), nullptr, 0, &txn) == 0, "a transaction begins");
    const std::vector<Record> records = records_of(*env, txn);
    for (int edits = 0; edits < 16 && !in.empty(); ++edits) {
      Record record = records[in.below(records.size())];
      switch (in.number<std::uint8_t>() % 8) {
        case 0: {  // gone
          MDB_val key{record.key.size(), record.key.data()};
          static_cast<void>(mdb_del(txn, env->dbi(record.table), &key, nullptr));
          break;
        }
        case 1:  // under another key, too
          edit(record.key, in);
          write(*env, txn, record);
          break;
        case 2:  // another record's bytes
          record.value = records[in.below(records.size())].value;
          write(*env, txn, record);
          break;
        default:
          edit(record.value, in);
          write(*env, txn, record);
      }
    }
    require(mdb_txn_commit(txn) == 0, "the edits are committed");
  }
  std::unique_ptr<tq::Index> index;
  typed("open", [&] { index = made.open(); });
  if (index) use_index(*index, order);
}

// Each record damaged once in each of a few ways.
std::vector<std::string> seeds() {
  IndexFixture& made = fixture();
  made.restore();
  std::size_t n = 0;
  {
    const auto env = tq::index::Env::open(made.directory());
    MDB_txn* txn = nullptr;
    require(mdb_txn_begin(env->raw(), nullptr, MDB_RDONLY, &txn) == 0, "a transaction begins");
    n = records_of(*env, txn).size();
    mdb_txn_abort(txn);
  }
  std::vector<std::string> all = {{}};
  for (std::size_t i = 0; i < n; ++i) {
    const auto record = static_cast<std::uint16_t>(i);
    const auto byte = [](std::size_t value) { return static_cast<std::uint8_t>(value); };
    all.push_back(InputWriter().number(byte(i)).number(record).number(byte(0)).bytes());
    all.push_back(InputWriter().number(byte(i)).number(record).number(byte(7)).number(byte(6)).number(static_cast<std::uint16_t>(8 * (i % 4)))
                      .number(byte(1 + i % 3)).number(byte(62)).bytes());
    all.push_back(InputWriter().number(byte(i)).number(record).number(byte(7)).number(byte(2)).number(static_cast<std::uint16_t>(7)).bytes());
  }
  return all;
}

const Registration registration("index", run, seeds);

}  // namespace
