#include "index/support.hpp"

using namespace tq_test;

TEST_CASE("a task sees the rows that are ready and not yet its own; tasks do not see each other's marks") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(6), {"a"});
  put(index, "p", by_index({0, 1, 4, 5}), {"b"});
  tq::TaskSnapshot snapshot = index.task_snapshot("p", "train", {"b", "a", "b"});
  CHECK(snapshot.partition_found);
  CHECK(snapshot.ready == std::vector<RowIndex>{0, 1, 4, 5});
  CHECK(snapshot.sampler_state == "");
  CHECK(index.task_commit("p", "train", snapshot.task_version, {"a", "b"}, {4, 0}, std::string("st\0te", 5)));
  snapshot = index.task_snapshot("p", "train", {"a", "b"});
  CHECK(snapshot.ready == std::vector<RowIndex>{1, 5});
  CHECK(snapshot.sampler_state == std::string("st\0te", 5));
  CHECK(index.task_snapshot("p", "other", {"a"}).ready == range(0, 6));
  const auto status = index.consumption("p", "train");
  CHECK(status.indexes == range(0, 6));
  CHECK(status.consumed == std::vector<std::uint8_t>{1, 0, 0, 0, 1, 0});
  CHECK(index.consumption("p", "other").consumed == std::vector<std::uint8_t>(6));
  CHECK(index.task_snapshot("p", "train", {"no such field"}).ready.empty());
  CHECK_FALSE(index.task_snapshot("q", "train", {"a"}).partition_found);
  CHECK_FALSE(index.consumption("q", "train").partition_found);
}

TEST_CASE("a commit is refused when anything it rests on has changed") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(6), {"a"});
  const tq::TaskSnapshot first = index.task_snapshot("p", "t", {"a"});
  CHECK(index.task_commit("p", "t", first.task_version, {"a"}, {0, 1}, "one"));
  CHECK_FALSE(index.task_commit("p", "t", first.task_version, {"a"}, {2}, "two"));  // somebody committed in between
  const tq::TaskSnapshot second = index.task_snapshot("p", "t", {"a"});
  CHECK_FALSE(index.task_commit("p", "t", second.task_version, {"a"}, {2, 1}, "two"));      // row 1 is consumed
  CHECK_FALSE(index.task_commit("p", "t", second.task_version, {"a", "b"}, {2}, "two"));    // and has no b
  CHECK_FALSE(index.task_commit("p", "t", second.task_version, {"a"}, {2, 99}, "two"));     // no such row
  index.clear_rows("p", by_index({3}));
  CHECK_FALSE(index.task_commit("p", "t", second.task_version, {"a"}, {2, 3}, "two"));      // cleared since
  CHECK(index.task_snapshot("p", "t", {"a"}).sampler_state == "one");
  CHECK(index.consumption("p", "t").consumed == std::vector<std::uint8_t>{1, 1, 0, 0, 0});
  CHECK(index.task_commit("p", "t", second.task_version, {"a"}, {}, "two"));  // state alone
  CHECK(index.task_snapshot("p", "t", {"a"}).sampler_state == "two");
}

TEST_CASE("consumed rows are counted with those that were cleared, until a reset") {
  Session session;
  Index& index = *session.index;
  CHECK(index.consumed_rows("p", "t") == std::nullopt);
  const std::int64_t n = 5000;  // more than one bitmap
  put(index, "p", fresh(n), {"a"});
  CHECK(index.consumed_rows("p", "t") == 0);
  const auto version = [&] { return index.task_snapshot("p", "t", {"a"}).task_version; };
  CHECK(index.task_commit("p", "t", version(), {"a"}, {0, 7, 8, 4095, 4096, 4999}, ""));
  CHECK(index.consumed_rows("p", "t") == 6);
  index.clear_rows("p", by_index({7, 9, 4096}));
  index.finish_clears();
  CHECK(index.consumed_rows("p", "t") == 6);
  CHECK(index.task_commit("p", "t", version(), {"a"}, {10}, ""));
  CHECK(index.consumed_rows("p", "t") == 7);
  CHECK(index.consumed_rows("p", "other") == 0);
  index.task_reset("p", "t");
  CHECK(index.consumed_rows("p", "t") == 0);
  index.clear_partition("p");
  CHECK(index.consumed_rows("p", "t") == std::nullopt);
}

TEST_CASE("a snapshot of a cleared partition cannot commit to a new one of its name") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(2), {"a"});
  const tq::TaskSnapshot old = index.task_snapshot("p", "t", {"a"});
  index.clear_partition("p");
  CHECK_FALSE(index.task_commit("p", "t", old.task_version, {"a"}, {}, "old"));
  put(index, "p", fresh(2), {"a"});
  CHECK_FALSE(index.task_commit("p", "t", old.task_version, {"a"}, {}, "old"));
  CHECK(index.task_snapshot("p", "t", {"a"}).sampler_state == "");
  CHECK(index.consumption("p", "t").consumed == std::vector<std::uint8_t>(2));
}

TEST_CASE("rows with data that no task has consumed") {
  Session session;
  Index& index = *session.index;
  CHECK(index.unconsumed_rows("p") == 0);
  put(index, "p", fresh(6), {"a"});
  put(index, "p", fresh(2), {});  // bare rows: nothing was written to them
  put(index, "q", fresh(3), {"a"});
  CHECK(index.unconsumed_rows("p") == 6);
  const auto take = [&](const std::string& task, std::vector<RowIndex> rows) {
    const auto snapshot = index.task_snapshot("p", task, {"a"});
    CHECK(index.task_commit("p", task, snapshot.task_version, {"a"}, rows, ""));
  };
  take("t", {0, 1});
  take("u", {1, 2});
  CHECK(index.unconsumed_rows("p") == 3);
  index.clear_rows("p", by_index({0, 3}));
  CHECK(index.unconsumed_rows("p") == 2);
  index.task_reset("p", "u");
  CHECK(index.unconsumed_rows("p") == 3);
  index.clear_partition("p");
  CHECK(index.unconsumed_rows("p") == 0);
  CHECK(index.unconsumed_rows("q") == 3);
}

TEST_CASE("a reset gives one task its rows again, or all of them, and refuses older commits") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(10'000), {"a"});
  for (const char* task : {"t", "u"}) {
    const auto snapshot = index.task_snapshot("p", task, {"a"});
    CHECK(index.task_commit("p", task, snapshot.task_version, {"a"}, snapshot.ready, "state"));
  }
  const auto empty = index.task_snapshot("p", "t", {"a"});
  CHECK(empty.ready.empty());
  index.task_reset("p", "t");
  CHECK_FALSE(index.task_commit("p", "t", empty.task_version, {"a"}, {}, "late"));
  CHECK(index.task_snapshot("p", "t", {"a"}).ready.size() == 10'000);
  CHECK(index.task_snapshot("p", "t", {"a"}).sampler_state == "");
  CHECK(index.task_snapshot("p", "u", {"a"}).ready.empty());
  index.task_reset("p", std::nullopt);
  CHECK(index.task_snapshot("p", "u", {"a"}).ready.size() == 10'000);
  index.task_reset("p", "nobody");
  index.task_reset("q", std::nullopt);
}

TEST_CASE("production: ready cells, rows that are not there, fields that were ever there") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"a"});
  put(index, "p", by_index({1, 2}), {"b"});
  put(index, "q", fresh(1), {"c"});
  auto status = index.production("p", {"b", "a", "c"}, std::nullopt);
  CHECK(status.indexes == range(0, 4));
  CHECK(status.ready == std::vector<std::uint8_t>{0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0});
  CHECK(status.field_known == std::vector<bool>{true, true, false});
  status = index.production("p", {"a", "b"}, std::vector<RowIndex>{2, 9, 0, -1, 2});
  CHECK(status.indexes == std::vector<RowIndex>{2, 9, 0, -1, 2});
  CHECK(status.ready == std::vector<std::uint8_t>{1, 1, 0, 0, 1, 0, 0, 0, 1, 1});
  index.clear_rows("p", by_index({1, 2}));
  CHECK(index.production("p", {"b"}, std::nullopt).field_known == std::vector<bool>{true});
  CHECK(index.field_names("p") == std::vector<std::string>{"a"});
  CHECK(index.field_names("no such").empty());
  CHECK_FALSE(index.production("no such", {"a"}, std::vector<RowIndex>{1}).partition_found);
}
