// Rows that are made under given indexes, and sessions whose indexes begin elsewhere.
#include "core/index/impl.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::ErrorCode;
using tq::LimitRule;
using tq::index::rows_given_out;
using tq::index::rows_of_a_node;

namespace {

constexpr RowIndex node_3 = 3 * rows_of_a_node;

PublishResult create(Index& index, const std::string& partition, const std::vector<RowIndex>& rows,
                     const std::vector<std::string>& fields, std::vector<std::string> tags = {}, BlockRef* block = nullptr) {
  PublishRequest request = request_of(partition, by_index(rows));
  request.create_rows = true;
  request.tags = std::move(tags);
  request.fields = dense_fields(fields, static_cast<std::int64_t>(rows.size()));
  if (!fields.empty()) request.reservation = reserve(index, nbytes_of(request.fields));
  if (block != nullptr) *block = request.reservation->block;
  try {
    return index.publish(request);
  } catch (...) {
    if (request.reservation) index.abandon(*request.reservation, owner);
    throw;
  }
}

// What somebody left who died between a clear's first commit and its batches.
void doom(const Session& session, const std::string& name, std::vector<tq::index::Segment> rows) {
  const auto env = tq::index::Env::open(session.directory.path());
  CountingGate gate;
  tq::index::WriteTxn txn(*env, gate);
  auto partition = tq::index::partition_by_name(txn, name);
  tq::index::doom_rows(txn, partition->id, rows);
  std::int64_t n = 0;
  for (const tq::index::Segment& segment : rows) n += segment.count;
  partition->record.doomed_rows += n;
  partition->record.rows -= n;
  txn.counters.rows -= n;
  tq::index::store_partition(txn, *partition);
  txn.commit(tq::index::Room::release);
}

void consume(Index& index, const std::vector<RowIndex>& rows) {
  const tq::TaskSnapshot snapshot = index.task_snapshot("p", "t", {"a"});
  REQUIRE(index.task_commit("p", "t", snapshot.task_version, {"a"}, rows, ""));
}

void limit_rows(Index& index, std::uint64_t rows, tq::WhenExceeded when) {
  LimitRule rule;
  rule.max_unconsumed_rows = LimitRule::Cap(std::in_place, rows);
  rule.when_exceeded = when;
  index.set_limits("p", rule);
}

}  // namespace

TEST_CASE("rows that exist are written over, the others are made under the indexes that were given") {
  Session session;
  Index& index = *session.index;
  BlockRef first;
  put(index, "p", fresh(4, {"k0", "k1", "k2", "k3"}), {"a"}, {}, &first);
  const std::vector<RowIndex> rows = {node_3 + 7, 2, node_3 + 5, 3, node_3 + 6, rows_given_out + 1};
  BlockRef block;
  const PublishResult made = create(index, "p", rows, {"a", "b"}, std::vector<std::string>(6, tag_map({{"t", "1"}})), &block);
  CHECK(made.indexes == rows);
  CHECK(made.retired.empty());
  const tq::RowListing listing = index.list_rows("p");
  CHECK(listing.indexes == std::vector<RowIndex>{0, 1, 2, 3, rows_given_out + 1, node_3 + 5, node_3 + 6, node_3 + 7});
  CHECK(listing.keys[2] == "k2");
  CHECK(!listing.keys[6].has_value());
  CHECK(listing.tags[6] == tag_map({{"t", "1"}}));
  CHECK(index.stats().rows == 8);
  const Resolution answer = index.resolve("p", by_index(rows), std::nullopt);
  CHECK(answer.gone.empty());
  for (std::int64_t i = 0; i < 6; ++i) {
    CHECK(cell_of(answer, 0, i) == Cell{block.word, i});
    CHECK(cell_of(answer, 1, i) == Cell{block.word, i});
  }
  // A second field for all of them, a bare row, and again what is there: nothing is made twice.
  create(index, "p", rows, {"c"});
  create(index, "p", {node_3 + 8, node_3 + 7}, {});
  CHECK(index.stats().rows == 9);
  CHECK(index.production("p", {"a", "c"}, std::vector<RowIndex>{node_3 + 7, node_3 + 8}).ready == std::vector<std::uint8_t>{1, 1, 0, 0});
  CHECK(put(index, "p", fresh(1), {"a"}).indexes == std::vector<RowIndex>{4});
  // Keys of rows far away are found, and rows behind them are new.
  CHECK(put(index, "p", by_key({"k1", "new"}), {"a"}).indexes == std::vector<RowIndex>{1, 5});
  CHECK(index.clear_rows("p", by_index(rows)).rows == 6);
  CHECK(index.stats().rows == 5);
  check_whole_index(session.directory.path());
  index.clear_partition("p");
  check_whole_index(session.directory.path());
  CHECK(index.stats().live_bytes == 0);
}

TEST_CASE("indexes that the session is yet to give out, and none, are refused") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"a"});
  for (const RowIndex row : {RowIndex{4}, rows_given_out - 1, RowIndex{-1}, RowIndex{1} << 62, INT64_MAX, INT64_MIN}) {
    const tq::Error error = error_of([&] { create(index, "q", {3, row, node_3}, {"a"}); });
    CHECK(error.code == ErrorCode::invalid);
    CHECK(error.rows == std::vector<RowIndex>{row});
  }
  CHECK(index.partitions() == std::vector<std::string>{"p"});
  create(index, "q", {3, rows_given_out, rows_of_a_node - 1, (RowIndex{1} << 62) - 1}, {"a"});
  CHECK(error_of([&] { create(index, "q", {node_3, node_3}, {"a"}); }).code == ErrorCode::invalid);
  PublishRequest keyed = request_of("q", by_key({"k"}));
  keyed.create_rows = true;
  CHECK(error_of([&] { index.publish(keyed); }).code == ErrorCode::invalid);
  CHECK(error_of([&] { put(index, "q", by_index({node_3}), {"a"}); }).code == ErrorCode::stale_rows);
  check_whole_index(session.directory.path());
}

TEST_CASE("a row that is cleared and not yet removed is made anew: without its cells, key and tags") {
  Session session;
  Index& index = *session.index;
  BlockRef first;
  put(index, "p", fresh(6, numbered("k", 6)), {"a", "b"}, std::vector<std::string>(6, tag_map({{"t", "1"}})), &first);
  doom(session, "p", {{1, 4, 0, 0}});
  CHECK(error_of([&] { put(index, "p", by_index({2}), {"a"}); }).code == ErrorCode::stale_rows);
  create(index, "p", {0, 2, 3}, {"a"});
  CHECK(index.list_rows("p").indexes == std::vector<RowIndex>{0, 2, 3, 5});
  CHECK(index.describe_rows("p", {0, 2}).keys == std::vector<std::optional<std::string>>{"k0", std::nullopt});
  CHECK(index.describe_rows("p", {2}).tags[0].empty());
  CHECK(index.find_keys("p", {"k2", "k5"}, nullptr) == std::vector<RowIndex>{-1, 5});
  CHECK(index.production("p", {"a", "b"}, std::vector<RowIndex>{0, 2}).ready == std::vector<std::uint8_t>{1, 1, 1, 0});
  check_whole_index(session.directory.path());
  index.finish_clears();  // goes on with the others, and with them only
  CHECK(index.list_rows("p").indexes == std::vector<RowIndex>{0, 2, 3, 5});
  check_whole_index(session.directory.path());
  // The last cells of a block.
  doom(session, "p", {{0, 1, 0, 0}, {5, 1, 0, 0}});
  const PublishResult last = create(index, "p", {0, 5}, {});
  CHECK(last.retired == std::vector<BlockRef>{first});
  check_whole_index(session.directory.path());
  CHECK(index.finish_clears().empty());
}

TEST_CASE("a row that is made again stays consumed, and limits count it so") {
  for (const bool doomed : {false, true}) {
    Session session;
    Index& index = *session.index;
    limit_rows(index, 4, tq::WhenExceeded::raise);
    const std::string version(1, '\5');
    put(index, "p", fresh(4), {"a"});
    consume(index, {0, 1});
    index.clear_rows("p", by_index({0}));
    if (doomed) {
      doom(session, "p", {{1, 1, 0, 0}});
    } else {
      index.clear_rows("p", by_index({1}));
    }
    create(index, "p", {0, 1, node_3}, {"a"});
    CHECK(*index.limit_report("p").unconsumed_rows == 3);
    CHECK(index.consumed_rows("p", "t") == 2);
    CHECK(index.consumption("p", "t").consumed == std::vector<std::uint8_t>{1, 1, 0, 0, 0});
    CHECK(index.task_snapshot("p", "t", {"a"}).ready == std::vector<RowIndex>{2, 3, node_3});
    CHECK(error_of([&] { create(index, "p", {node_3 + 1, node_3 + 2}, {"a"}); }).code == ErrorCode::limit_exceeded);
    create(index, "p", {node_3 + 1, 0}, {"a"});
    check_whole_index(session.directory.path());
  }
}

TEST_CASE("the oldest rows are shed, also those that are put when higher ones are there") {
  Session session;
  Index& index = *session.index;
  limit_rows(index, 3, tq::WhenExceeded::shed);
  create(index, "p", {node_3, node_3 + 1, node_3 + 2}, {"a"});
  CHECK(put(index, "p", fresh(1), {"a"}).shed_rows == 1);
  CHECK(index.list_rows("p").indexes == std::vector<RowIndex>{0, node_3 + 1, node_3 + 2});
  CHECK(create(index, "p", {node_3 + 9}, {"a"}).shed_rows == 1);
  CHECK(index.list_rows("p").indexes == std::vector<RowIndex>{node_3 + 1, node_3 + 2, node_3 + 9});
  check_whole_index(session.directory.path());
}

TEST_CASE("versions of the weights of rows that are made") {
  Session session;
  Index& index = *session.index;
  LimitRule rule;
  rule.max_version_lag = LimitRule::Cap(std::in_place, std::uint64_t{2});
  index.set_limits("p", rule);
  const auto of = [](char version) { return tag_map({{"weight_version", std::string(1, version)}}); };
  create(index, "p", {node_3, node_3 + 1}, {"a"}, {of(5), of(6)});
  consume(index, {node_3});
  index.clear_rows("p", by_index({node_3}));
  create(index, "p", {node_3, node_3 + 2}, {"a"}, {of(4), of(7)});  // the first of them is consumed and holds nobody back
  CHECK(index.limit_report("p").oldest_version == 6);
  CHECK(index.limit_report("p").newest_version == 7);
  check_whole_index(session.directory.path());
}

TEST_CASE("indexes begin where the session was told, and its checkpoints and those of others keep apart") {
  TempDirectory directory;
  CountingGate gate;
  TestJudge judge;
  CHECK(error_of([&] { Index::create(directory.path(), 16u << 20, 1u << 30, 1u << 22, 0, {}, 12); }).code == ErrorCode::invalid);
  CHECK(error_of([&] { Index::create(directory.path(), 16u << 20, 1u << 30, 1u << 22, 0, {}, RowIndex{1} << 62); }).code == ErrorCode::invalid);
  Index::create(directory.path(), 16u << 20, 1u << 30, 1u << 22, 0, {}, node_3);
  Index index(directory.path(), gate, judge);
  index.grow(1u << 30);
  CHECK(put(index, "p", fresh(3, {"a", "b", "c"}), {"a"}).indexes == range(node_3, 3));
  const std::vector<RowIndex> others = {7, 8, node_3 + rows_given_out, node_3 + rows_of_a_node};
  create(index, "q", others, {"a"});
  consume(index, {node_3 + 1});
  CHECK(index.list_rows("q").indexes == others);
  CHECK(error_of([&] { create(index, "q", {node_3 + 3}, {"a"}); }).code == ErrorCode::invalid);
  const auto claim = index.claim({"p", "t", index.task_snapshot("p", "t", {"a"}).task_version, {"a"}, {node_3 + 2}, ""}, owner, 1000);
  REQUIRE(claim.has_value());
  CHECK(index.task_snapshot("p", "t", {"a"}).claimed == std::vector<RowIndex>{node_3 + 2});
  check_whole_index(directory.path());

  const auto snapshot = index.save([](const auto&) { return true; });
  REQUIRE(snapshot.has_value());
  CHECK(snapshot->session.next_row == node_3 + 3);
  const auto load = [&](Index& into) {
    std::vector<Reservation> reservations;
    for (const tq::SavedBlock& block : snapshot->session.blocks) reservations.push_back(reserve(into, block.nbytes));
    into.replace(snapshot->session, reservations, owner);
    into.finish_clears();
  };
  load(index);
  check_whole_index(directory.path());
  CHECK(index.list_rows("q").indexes == others);
  CHECK(put(index, "p", fresh(1), {"a"}).indexes == std::vector<RowIndex>{node_3 + 3});

  Session elsewhere;
  put(*elsewhere.index, "p", fresh(2), {"a"});
  load(*elsewhere.index);
  check_whole_index(elsewhere.directory.path());
  CHECK(elsewhere.index->list_rows("p").indexes == range(node_3, 3));
  // Those of its own that the checkpoint names are spent; it does not go on among the other node's.
  CHECK(put(*elsewhere.index, "p", by_key({"b", "new"}), {"a"}).indexes == std::vector<RowIndex>{node_3 + 1, 9});
  check_whole_index(elsewhere.directory.path());
}
