// What the index says of limits: rules, accounts of partitions, rows of each version of the weights. Edited behind its back,
// then every call that meets one. The rest of the index is in order.
#include "fuzz/record_edits.hpp"

namespace {

using namespace tq_fuzz;
using tq::Index;
using tq::LimitRule;
using tq::RowsBy;
using tq::WhenExceeded;
using tq::index::Table;

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
    put(index, partition, fresh(2), 2, {"x"}, {version_tag(3), version_tag(3)}, false, 5'000);
    consume(index, partition, {index.task_snapshot(partition, "learn", {"x"}).ready.at(0)});
  }
}

struct Place {
  IndexFixture fixture;
  Place() { fixture.add(add_limits); }
};

Place& place() {
  static Place instance;
  return instance;
}

// Keys stay in their table.
RecordEdits edits() {
  return {place().fixture, {Table::limit_rules, Table::flow, Table::row_versions},
          [](const Record& record) { return !record.key.empty() && record.key[0] == static_cast<char>(record.table); },
          [](std::string& key, Input& in) {
            std::string tail = key.substr(1);
            edit(tail, in);
            key = key.substr(0, 1) + tail.substr(0, 510);
          },
          8};
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
  edits().apply(in);
  std::unique_ptr<Index> index;
  typed("open", [&] { index = made.open(); });
  if (index) use(*index, order);
}

// Each record damaged once in each of a few ways.
std::vector<std::string> seeds() {
  IndexFixture& made = place().fixture;
  made.restore();
  const std::size_t n = edits().count();
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
