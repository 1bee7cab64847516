// What the index says of limits: rules, accounts of partitions, rows of each version of the weights. Edited behind its back,
// then every call that meets one. The rest of the index is in order.
#include <lmdb.h>

#include "core/index/txn.hpp"
#include "fuzz/index_fixture.hpp"

namespace {

using namespace tq_fuzz;
using tq::Index;
using tq::LimitRule;
using tq::RowsBy;
using tq::WhenExceeded;
using tq::index::Table;

struct Record {
  std::string key;
  std::string value;
};
const Table tables[] = {Table::limit_rules, Table::flow, Table::row_versions};

std::string version_tag(std::uint8_t version) {  // as MessagePack has numbers below 128
  const std::string name = "weight_version";
  return std::string("\x01\0\0\0", 4) + static_cast<char>(name.size()) + std::string(3, '\0') + name + std::string("\x01\0\0\0", 4) +
         static_cast<char>(version);
}

LimitRule rule(std::uint64_t bytes, std::uint64_t rows, std::uint64_t lag, WhenExceeded when, std::vector<std::string> consumers) {
  LimitRule made;
  made.max_bytes = LimitRule::Cap(std::in_place, bytes);
  made.max_unconsumed_rows = LimitRule::Cap(std::in_place, rows);
  made.max_version_lag = LimitRule::Cap(std::in_place, lag);
  made.when_exceeded = when;
  made.consumers = std::move(consumers);
  return made;
}

tq::RowSelector fresh(std::int64_t count) { return {RowsBy::fresh, count, {}, {}}; }

void consume(Index& index, const std::string& partition, const std::vector<tq::RowIndex>& rows) {
  const auto snapshot = index.task_snapshot(partition, "learn", {"x"});
  index.task_commit(partition, "learn", snapshot.task_version, {"x"}, rows, "");
}

// Two partitions, one of which sheds; the rows of both begin at 57, behind those of the fixture.
void add_limits(Index& index) {
  index.set_limits("flow*", rule(1u << 24, 40, 20, WhenExceeded::wait, {"learn", "judge"}));
  index.set_limits("flow_shed", rule(1u << 20, 10, 4, WhenExceeded::shed, {}));
  LimitRule part;
  part.max_bytes = LimitRule::Cap(std::in_place, std::nullopt);
  index.set_limits("f*", part);
  for (const char* partition : {"flow", "flow_shed"}) {
    put(index, partition, fresh(4), 4, {"x"}, {version_tag(1), version_tag(1), version_tag(2), {}});
    put(index, partition, fresh(2), 2, {"x"}, {version_tag(3), version_tag(3)});
    consume(index, partition, {index.task_snapshot(partition, "learn", {"x"}).ready.at(0)});
  }
}

struct Place {
  IndexFixture fixture;
  std::size_t n_records = 0;
  Place() { fixture.add(add_limits); }
};

Place& place() {
  static Place instance;
  return instance;
}

std::vector<Record> records_of(tq::index::Env& env, MDB_txn* txn) {
  std::vector<Record> records;
  for (const Table table : tables) {
    MDB_cursor* cursor = nullptr;
    require(mdb_cursor_open(txn, env.dbi(table), &cursor) == 0, "a cursor opens");
    MDB_val key;
    MDB_val value;
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
      const std::string name(static_cast<char*>(key.mv_data), key.mv_size);
      if (name.empty() || name[0] != static_cast<char>(table)) continue;
      records.push_back({name, {static_cast<char*>(value.mv_data), value.mv_size}});
    }
    mdb_cursor_close(cursor);
  }
  return records;
}

void use(Index& index, std::uint8_t order) {
  for (const char* partition : {"flow", "flow_shed", "flow_new", "train"}) {
    typed("limit_report", [&] { index.limit_report(partition); });
    typed("look_at_limits", [&] { index.look_at_limits(partition, fresh(3), 4096, {version_tag(4), {}, version_tag(0)}); });
  }
  typed("limit_rules", [&] { index.limit_rules(); });
  typed("check", [&] { index.check(); });
  const std::vector<std::function<void()>> writers = {
      [&] { typed("put", [&] { put(index, "flow", fresh(2), 2, {"x"}, {version_tag(4), version_tag(5)}); }); },
      [&] { typed("put that sheds", [&] { put(index, "flow_shed", fresh(8), 8, {"x"}, std::vector<std::string>(8, version_tag(6))); }); },
      [&] { typed("put into a new partition", [&] { put(index, "flow_new", fresh(1), 1, {"x"}, {version_tag(9)}); }); },
      [&] { typed("merge_tags", [&] {
          const auto rows = index.list_rows("flow").indexes;
          if (!rows.empty()) index.merge_tags("flow", {rows.front()}, {version_tag(7)});
        }); },
      [&] { typed("consume", [&] { consume(index, "flow", index.task_snapshot("flow", "learn", {"x"}).ready); }); },
      [&] { typed("task_reset", [&] { index.task_reset("flow_shed", std::nullopt); }); },
      [&] { typed("set_weight_version", [&] { index.set_weight_version("flow", 40); }); },
      [&] { typed("set_limits", [&] { index.set_limits("flow*", rule(1u << 22, 30, 9, WhenExceeded::raise, {"judge"})); }); },
      [&] { typed("clear_rows", [&] { index.clear_rows("flow", {RowsBy::index, 0, {57, 58, 60}, {}}); }); },
      [&] { typed("clear_partition", [&] { index.clear_partition("flow_shed"); }); },
      [&] { typed("finish_clears", [&] { index.finish_clears(); }); },
  };
  for (std::size_t i = 0; i < writers.size(); ++i) writers[(i * (1 + 2 * (order % 5u)) + order) % writers.size()]();
  typed("check afterwards", [&] { index.check(); });
}

void run(std::string_view input) {
  IndexFixture& made = place().fixture;
  made.restore();
  Input in(input);
  const auto order = in.number<std::uint8_t>();
  {
    const auto env = tq::index::Env::open(made.directory());
    MDB_txn* txn = nullptr;
    require(mdb_txn_begin(env->raw(), nullptr, 0, &txn) == 0, "a transaction begins");
    const std::vector<Record> records = records_of(*env, txn);
    for (int edits = 0; edits < 8 && !in.empty(); ++edits) {
      Record record = records[in.below(records.size())];
      const auto table = static_cast<Table>(record.key[0]);
      MDB_val key{record.key.size(), record.key.data()};
      switch (in.number<std::uint8_t>() % 8) {
        case 0:  // gone
          static_cast<void>(mdb_del(txn, env->dbi(table), &key, nullptr));
          continue;
        case 1: {  // under another key, too
          std::string tail = record.key.substr(1);
          edit(tail, in);
          record.key = record.key.substr(0, 1) + tail.substr(0, 510);
          key = {record.key.size(), record.key.data()};
          break;
        }
        case 2: record.value = records[in.below(records.size())].value; break;
        default: edit(record.value, in);
      }
      MDB_val value{record.value.size(), record.value.data()};
      static_cast<void>(mdb_put(txn, env->dbi(table), &key, &value, 0));
    }
    require(mdb_txn_commit(txn) == 0, "the edits are committed");
  }
  std::unique_ptr<Index> index;
  typed("open", [&] { index = made.open(); });
  if (index) use(*index, order);
}

// Each record damaged once in each of a few ways.
std::vector<std::string> seeds() {
  IndexFixture& made = place().fixture;
  made.restore();
  std::size_t n = 0;
  {
    const auto env = tq::index::Env::open(made.directory());
    MDB_txn* txn = nullptr;
    require(mdb_txn_begin(env->raw(), nullptr, MDB_RDONLY, &txn) == 0, "a transaction begins");
    n = records_of(*env, txn).size();
    mdb_txn_abort(txn);
  }
  require(n >= 8, "the fixture has records of limits");
  std::vector<std::string> all = {{}};
  const auto byte = [](std::size_t value) { return static_cast<std::uint8_t>(value); };
  for (std::size_t i = 0; i < n; ++i) {
    const auto record = static_cast<std::uint16_t>(i);
    for (const auto way : std::initializer_list<std::uint8_t>{0, 2}) all.push_back(InputWriter().number(byte(i)).number(record).number(way).number(byte(i + 1)).bytes());
    for (std::uint16_t at = 0; at < 48; at = static_cast<std::uint16_t>(at + 4)) {
      for (const auto kind : std::initializer_list<std::uint8_t>{0, 1, 6}) {  // edits: a byte, a flipped bit, a number near the end of its type
        all.push_back(InputWriter().number(byte(i)).number(record).number(byte(7)).number(kind).number(at).number(byte(1 + at % 3)).number(byte(62)).bytes());
      }
    }
    all.push_back(InputWriter().number(byte(i)).number(record).number(byte(1)).number(byte(0)).number(static_cast<std::uint16_t>(i % 12)).number(byte(255)).bytes());
  }
  return all;
}

const Registration registration("limits", run, seeds);

}  // namespace
