// Clears: atomic however large, bounded in batches, continued by whoever comes next.
#include "core/index/impl.hpp"
#include "core/pause.hpp"
#include "index/support.hpp"

#include <tuple>

using namespace tq_test;

namespace {

constexpr const char* between = "index.clear.between_batches";

// The clear dies after its first commit.
template <class Call>
void cut_short(Call&& call) {
  tq::arm_pause(between, tq::PauseAction::fail);
  CHECK(error_of(call).code == tq::ErrorCode::system);
  tq::resume_pause(between);
}

bool nothing_left(const std::string& directory) {
  const auto env = tq::index::Env::open(directory);
  const tq::index::ReadTxn txn(*env);
  using tq::index::Table;
  for (const Table table : {Table::runs, Table::rowinfo, Table::key_rows, Table::blocks, Table::tasks, Table::consumed,
                            Table::doomed_rows, Table::doomed_partitions, Table::partition_fields, Table::partitions,
                            Table::partition_names}) {
    tq::index::Cursor cursor(txn, table);
    if (cursor.seek(tq::index::Key(table))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a partition that is made again has no version that it had before") {
  Session session;
  Index& index = *session.index;
  put(index, "p", by_key({"a"}), {"x"});
  put(index, "p", by_key({"b"}), {"x"});
  const std::uint64_t seen = index.partition_version(*index.find_partition("p"));
  index.clear_partition("p");
  for (const char* key : {"a", "b", "c", "d"}) {
    put(index, "p", by_key({key}), {"x"});
    CHECK(index.partition_version(*index.find_partition("p")) > seen);
  }
}

TEST_CASE("clearing twice, unknown rows, unknown partitions is no error") {
  Session session;
  Index& index = *session.index;
  put(index, "p", by_key({"a", "b", "c"}), {"x"});
  CHECK(index.clear_rows("p", by_key({"a", "nobody", "a"})).rows == 1);
  CHECK(index.clear_rows("p", by_key({"a"})).rows == 0);
  CHECK(index.clear_rows("p", by_index({0, 1, 1, 77, -3})).rows == 1);
  CHECK_FALSE(index.clear_rows("q", by_index({2})).partition_found);
  CHECK_FALSE(index.clear_partition("q").partition_found);
  CHECK(index.list_rows("p").indexes == std::vector<RowIndex>{2});
  const Index::ClearResult last = index.clear_rows("p", by_index({2}));
  CHECK(last.retired.size() == 1);
  // Its partition stays, empty.
  CHECK(index.partitions() == std::vector<std::string>{"p"});
  CHECK(index.list_rows("p").partition_found);
  CHECK(index.clear_partition("p").rows == 0);
  CHECK(nothing_left(session.directory.path()));
  check_whole_index(session.directory.path());
}

TEST_CASE("a block is described while rows name it, and after that by what it was") {
  Session session;
  Index& index = *session.index;
  using State = Index::BlockFacts::State;
  BlockRef block;
  put(index, "p", fresh(4), {"x", "y"}, {}, &block);
  BlockRef other;
  put(index, "q", fresh(1), {"x"}, {}, &other);
  const auto facts_of = [&index](BlockRef ref) { return index.describe_blocks({ref}).at(0); };
  Index::BlockFacts facts = facts_of(block);
  CHECK(facts.state == State::live);
  CHECK(facts.partition == "p");
  CHECK(facts.n_rows == 4);
  CHECK(facts.n_fields == 2);
  CHECK(facts.span.nbytes > 0);
  CHECK(facts.live_nbytes == facts.span.nbytes);
  const Span span = facts.span;

  index.clear_rows("p", by_index({0}));
  facts = facts_of(block);
  CHECK(facts.state == State::live);
  CHECK(facts.live_nbytes == span.nbytes / 4 * 3);

  index.clear_rows("p", by_index({1, 2, 3}));
  cut_short([&] { index.clear_partition("q"); });
  facts = facts_of(other);  // of a partition that is gone, its records not yet
  CHECK(facts.state == State::live);
  CHECK(facts.partition == "q");
  CHECK(facts.live_nbytes == 0);
  index.finish_clears();
  index.clear_partition("p");
  put(index, "p", fresh(1), {"x"});  // another partition of that name
  for (const auto& [ref, name, rows, fields] : {std::tuple{block, "p", 4u, 2u}, std::tuple{other, "q", 1u, 1u}}) {
    facts = facts_of(ref);
    CHECK(facts.state == State::retired);
    CHECK(facts.partition == name);
    CHECK(facts.n_rows == rows);
    CHECK(facts.n_fields == fields);
    CHECK(facts.live_nbytes == 0);
  }
  CHECK(facts_of(block).span == span);
  index.free_retired(index.retired());
  CHECK(facts_of(block).state == State::none);
  check_whole_index(session.directory.path());
}

TEST_CASE("a large clear cut short between batches: the rows are gone for everybody at once") {
  Session session(64u << 20);
  Index& index = *session.index;
  const auto keys = numbered("key ", 3'000);
  std::vector<std::string> tags(keys.size(), tag_map({{"t", "1"}}));
  for (int i = 0; i < 3'000; i += 2) {  // blocks of two rows
    put(index, "p", by_key({keys[static_cast<std::size_t>(i)], keys[static_cast<std::size_t>(i) + 1]}), {"x"}, {tags[0], tags[0]});
  }
  std::vector<RowIndex> rows = range(10, 2'989);  // in the middle of a block at both ends
  cut_short([&] { index.clear_rows("p", by_index(rows)); });

  const std::vector<RowIndex> left = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2999};
  const auto listing = index.list_rows("p");
  CHECK(listing.indexes == left);
  CHECK(listing.keys.back() == "key 2999");
  CHECK(index.stats().rows == 11);
  CHECK(index.partition_stats()[0].rows == 11);
  CHECK(index.resolve("p", by_index({9, 10, 2998, 2999}), std::nullopt).gone == std::vector<std::int64_t>{1, 2});
  bool found = false;
  CHECK(index.find_keys("p", {"key 9", "key 10", "key 2998"}, &found) == std::vector<RowIndex>{9, -1, -1});
  CHECK(index.describe_rows("p", {10}).keys[0] == std::nullopt);
  CHECK(index.describe_rows("p", {10}).tags[0] == "");
  CHECK(index.production("p", {"x"}, std::nullopt).indexes == left);
  CHECK(index.production("p", {"x"}, std::vector<RowIndex>{10, 9}).ready == std::vector<std::uint8_t>{0, 1});
  CHECK(index.consumption("p", "t").indexes == left);
  const auto snapshot = index.task_snapshot("p", "t", {"x"});
  CHECK(snapshot.ready == left);
  CHECK_FALSE(index.task_commit("p", "t", snapshot.task_version, {"x"}, {10}, ""));
  CHECK(error_of([&] { put(index, "p", by_index({9, 10}), {"y"}); }).rows == std::vector<RowIndex>{10});
  CHECK(error_of([&] { index.merge_tags("p", {10}, {""}); }).code == tq::ErrorCode::stale_rows);
  CHECK(index.clear_rows("p", by_index({10, 11})).rows == 0);
  CHECK(index.field_names("p") == std::vector<std::string>{"x"});
  // A key of theirs is free at once, for a new row.
  const PublishResult again = put(index, "p", by_key({"key 9", "key 10"}), {"y"});
  CHECK(again.indexes == std::vector<RowIndex>{9, 3'000});
  CHECK(index.find_keys("p", {"key 10"}, &found) == std::vector<RowIndex>{3'000});
  check_whole_index(session.directory.path());

  CHECK(index.finish_clears().size() == (2'998 - 10) / 2);
  CHECK(index.find_keys("p", {"key 10"}, &found) == std::vector<RowIndex>{3'000});
  CHECK(index.list_rows("p").indexes.size() == 12);
  CHECK(index.finish_clears().empty());
  check_whole_index(session.directory.path());
  index.clear_partition("p");
  CHECK(nothing_left(session.directory.path()));
}

TEST_CASE("a partition cleared and cut short is gone by name, and a new one of its name starts empty") {
  Session session(64u << 20);
  Index& index = *session.index;
  put(index, "p", by_key(numbered("key ", 5'000)), {"x"});
  const auto snapshot = index.task_snapshot("p", "t", {"x"});
  index.task_commit("p", "t", snapshot.task_version, {"x"}, snapshot.ready, "state");
  for (RowIndex row = 0; row < 5'000; ++row) put(index, "p", by_index({row}), {"y"});
  cut_short([&] { index.clear_partition("p"); });
  CHECK(index.partitions().empty());
  CHECK(index.stats().rows == 0);
  CHECK_FALSE(index.list_rows("p").partition_found);
  CHECK(put(index, "p", by_key({"key 1"}), {"x"}).indexes == range(5'000, 1));
  CHECK(index.list_rows("p").indexes == range(5'000, 1));
  check_whole_index(session.directory.path());
  CHECK(index.finish_clears().size() == 5'001);
  CHECK(index.list_rows("p").indexes == range(5'000, 1));
  check_whole_index(session.directory.path());
  index.clear_partition("p");
  CHECK(nothing_left(session.directory.path()));
}

TEST_CASE("a hundred thousand rows go at once") {
  Session session(64u << 20);
  Index& index = *session.index;
  put(index, "p", fresh(100'000), {"x"});
  for (int i = 0; i < 400; ++i) put(index, "p", by_index(range(i * 250 + 3, 100)), {"y"});
  CHECK(index.clear_rows("p", by_index(range(1, 99'998))).rows == 99'998);
  CHECK(index.list_rows("p").indexes == std::vector<RowIndex>{0, 99'999});
  check_whole_index(session.directory.path());
  CHECK(index.clear_partition("p").rows == 2);
  CHECK(index.free_retired(index.retired()) > 0);
  const auto stats = index.stats();
  CHECK(stats.free_bytes == stats.reserved_bytes);
  CHECK(stats.largest_free == stats.reserved_bytes);
}

TEST_CASE("an index filled until puts are refused still clears, and then takes puts again") {
  for (const bool one_by_one : {true, false}) {
    Session session(4u << 20);
    Index& index = *session.index;
    std::int64_t rows = 0;
    const auto fill = [&] {
      for (;; rows += one_by_one ? 1 : 100) {
        try {
          const auto keys = numbered("a key of some length for the index to keep ", one_by_one ? 1 : 100, rows);
          put(index, "p" + std::to_string(rows / 2'000), by_key(keys), {"a", "b"},
              std::vector<std::string>(keys.size(), tag_map({{"tag", "value"}})));
        } catch (const tq::Error& error) {
          REQUIRE(error.code == tq::ErrorCode::index_full);
          CHECK(std::string(error.what()).find("clear rows or partitions") != std::string::npos);
          return;
        }
      }
    };
    fill();
    CHECK(rows > 1'000);
    check_whole_index(session.directory.path());
    CHECK(index.resolve("p0", by_index({0}), std::nullopt).blocks.size() == 1);  // reads go on
    const auto snapshot = index.task_snapshot("p0", "t", {"a"});
    CHECK(index.task_commit("p0", "t", snapshot.task_version, {"a"}, {0}, "state"));  // and so does consumption
    // Everything but one row in three, by index; then by partition.
    std::vector<RowIndex> most;
    for (const RowIndex row : index.list_rows("p0").indexes) {
      if (row % 3 != 0) most.push_back(row);
    }
    CHECK(index.clear_rows("p0", by_index(most)).rows == static_cast<std::int64_t>(most.size()));
    check_whole_index(session.directory.path());
    for (const std::string& name : index.partitions()) index.clear_partition(name);
    index.free_retired(index.retired());
    CHECK(nothing_left(session.directory.path()));
    check_whole_index(session.directory.path());
    const std::int64_t before = rows;
    fill();
    CHECK(rows - before > before / 2);
    check_whole_index(session.directory.path());
  }
}
