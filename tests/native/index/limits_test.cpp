#include "core/index/limit_rules.hpp"
#include "core/index/records.hpp"
#include "core/index/shed.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::ErrorCode;
using tq::LimitReport;
using tq::LimitRule;
using tq::WhenExceeded;

namespace {

LimitRule rule(std::optional<std::uint64_t> bytes, std::optional<std::uint64_t> rows, std::optional<std::uint64_t> lag,
               WhenExceeded when, std::vector<std::string> consumers = {}) {
  LimitRule made;
  made.max_bytes = LimitRule::Cap(std::in_place, bytes);
  made.max_unconsumed_rows = LimitRule::Cap(std::in_place, rows);
  made.max_version_lag = LimitRule::Cap(std::in_place, lag);
  made.when_exceeded = when;
  made.consumers = std::move(consumers);
  return made;
}

std::vector<std::string> versions(std::int64_t count, unsigned char version) {
  return std::vector<std::string>(static_cast<std::size_t>(count),
                                  tag_map({{"weight_version", std::string(1, static_cast<char>(version))}}));
}

std::uint64_t figure(const tq::Error& error, const std::string& name) {
  for (const auto& [each, value] : error.figures) {
    if (each == name) return value;
  }
  FAIL("the error has no figure " << name);
  return 0;
}

void consume(Index& index, const std::string& task, const std::vector<RowIndex>& rows) {
  const tq::TaskSnapshot snapshot = index.task_snapshot("p", task, {"a"});
  CHECK(index.task_commit("p", task, snapshot.task_version, {"a"}, rows, ""));
}

}  // namespace

TEST_CASE("patterns") {
  using tq::index::matches;
  CHECK(matches("train*", "train"));
  CHECK(matches("train*", "train_0"));
  CHECK_FALSE(matches("train*", "a train"));
  CHECK(matches("*", ""));
  CHECK(matches("*a*b", "xxaxab"));
  CHECK_FALSE(matches("*a*b", "xxaxabc"));
  CHECK(matches("**", "x"));
  CHECK_FALSE(matches("", "x"));
  CHECK(matches("a?[b]", "a?[b]"));
  CHECK_FALSE(matches("a?", "ab"));
  CHECK(matches(std::string("\0*\xff", 3), std::string("\0\0\xff", 3)));
}

TEST_CASE("the most specific rule counts, setting by setting, and rules outlive the environment") {
  Session session;
  Index& index = *session.index;
  LimitRule all;
  all.max_bytes = LimitRule::Cap(std::in_place, 100);
  all.when_exceeded = WhenExceeded::raise;
  index.set_limits("*", all);
  LimitRule some;
  some.max_unconsumed_rows = LimitRule::Cap(std::in_place, 5);
  some.consumers = {"x"};
  index.set_limits("p*", some);
  LimitRule one;
  one.max_bytes = LimitRule::Cap(std::in_place, std::nullopt);
  index.set_limits("p", one);
  LimitReport report = index.limit_report("p");
  CHECK(report.limits.max_bytes == std::nullopt);
  CHECK(report.limits.max_unconsumed_rows == 5);
  CHECK(report.limits.when_exceeded == WhenExceeded::raise);
  CHECK(report.limits.consumers == std::vector<std::string>{"x"});
  report = index.limit_report("q");
  CHECK(report.limits.max_bytes == 100);
  CHECK(report.limits.max_unconsumed_rows == std::nullopt);
  CHECK(index.limit_rules().size() == 3);
  CHECK(error_of([&] { index.set_limits("", all); }).code == ErrorCode::invalid);
  CHECK(error_of([&] { index.set_limits(std::string(401, 'x'), all); }).code == ErrorCode::invalid);
  some.consumers = std::vector<std::string>(65, "x");
  CHECK(error_of([&] { index.set_limits("p", some); }).code == ErrorCode::invalid);
  check_whole_index(session.directory.path());
}

TEST_CASE("a refused put leaves nothing: no partition, no key, no field; its room stays its own") {
  Session session;
  Index& index = *session.index;
  index.set_limits("p", rule(std::nullopt, 4, std::nullopt, WhenExceeded::raise));
  const auto fields = dense_fields({"a"}, 5);
  const Reservation reservation = reserve(index, nbytes_of(fields));
  const tq::Error error = error_of([&] { index.publish(request_of("p", fresh(5, numbered("k", 5)), reservation, fields)); });
  CHECK(error.code == ErrorCode::limit_exceeded);
  CHECK(error.names == std::vector<std::string>{"p", "max_unconsumed_rows", "raise"});
  CHECK(figure(error, "cap") == 4);
  CHECK(figure(error, "wanted") == 5);
  CHECK(figure(error, "never") == 1);
  CHECK(index.partitions().empty());
  CHECK(index.stats().pending_bytes == reservation.span.nbytes);
  index.abandon(reservation, owner);
  put(index, "p", fresh(4, numbered("k", 4)), {"a"});
  CHECK(figure(error_of([&] { put(index, "p", fresh(1), {"a"}); }), "never") == 0);
  CHECK(index.list_rows("p").indexes.size() == 4);
  put(index, "p", by_index(index.list_rows("p").indexes), {"b"});  // rows that are there
  consume(index, "t", {index.list_rows("p").indexes.front()});
  CHECK(index.limit_report("p").unconsumed_rows == 3);
  put(index, "p", fresh(1), {"a"});
  CHECK(index.limit_report("p").unconsumed_rows == 4);
  check_whole_index(session.directory.path());
}

TEST_CASE("bytes are those of the blocks' live share") {
  Session session;
  Index& index = *session.index;
  index.set_limits("p", rule(1024, std::nullopt, std::nullopt, WhenExceeded::raise));
  put(index, "p", fresh(128), {"a"});
  CHECK(index.limit_report("p").live_bytes == 1024);
  CHECK(error_of([&] { put(index, "p", fresh(1), {"a"}); }).code == ErrorCode::limit_exceeded);
  put(index, "p", by_index(range(0, 128)), {"a"});  // frees what it takes
  index.clear_rows("p", by_index(range(0, 64)));
  put(index, "p", fresh(64), {"a"});
  CHECK(figure(error_of([&] { put(index, "p", fresh(129), {"a"}); }), "never") == 1);
  CHECK(error_of([&] { index.look_at_limits("p", fresh(1), 8, {}); }).code == ErrorCode::limit_exceeded);
  CHECK(error_of([&] { index.look_at_limits("q p", fresh(1), 8, {}); index.look_at_limits("p", fresh(1), 2000, {}); }).code ==
        ErrorCode::limit_exceeded);
  check_whole_index(session.directory.path());
}

TEST_CASE("names of payload on other nodes count for what they stand for, wherever they are moved") {
  Session session(16u << 20, std::uint64_t{1} << 34, 1u << 22, std::uint64_t{1} << 30);
  Index& index = *session.index;
  const auto held = [&] { return index.limit_report("p").live_bytes; };
  index.set_limits("p", rule(10'000, std::nullopt, std::nullopt, WhenExceeded::raise));
  const auto away = put(index, "p", fresh(10), {"a", "b"}, {}, nullptr, 6'001).indexes;
  CHECK(held() == 6'001);
  CHECK(index.partition_stats().at(0).live_bytes == 6'001);
  CHECK(index.stats().live_bytes == 192);  // what is here: two fields of names
  const tq::Error refused = error_of([&] { put(index, "p", fresh(1), {"a"}, {}, nullptr, 4'000); });
  CHECK(refused.code == ErrorCode::limit_exceeded);
  CHECK(figure(refused, "there") == 6'001);
  CHECK(figure(refused, "wanted") == 4'000);
  CHECK(figure(refused, "never") == 0);
  CHECK(figure(error_of([&] { put(index, "p", fresh(1), {"a"}, {}, nullptr, 10'001); }), "never") == 1);
  CHECK(error_of([&] { index.look_at_limits("p", fresh(1), 4'000, {}); }).code == ErrorCode::limit_exceeded);
  const auto here = put(index, "p", fresh(2), {"a"}).indexes;
  CHECK(held() == 6'065);
  // A share a cell; an overwrite frees what it takes.
  index.clear_rows("p", by_index({away[0]}));
  CHECK(held() == 5'401 + 64);
  put(index, "p", by_index({away[1], away[2]}), {"b"}, {}, nullptr, 1'000);
  CHECK(held() == 5'401 - 600 + 1'000 + 64);
  // A move takes all of it along, also of blocks of either kind; what it leaves behind stays where it is.
  std::uint64_t before = held();
  const Resolution source = index.resolve("p", by_index({away[1], away[5], here[0]}), std::vector<std::string>{"a"});
  const auto fields = dense_fields({"a"}, 3);
  CHECK(index.publish_moved(source, reserve(index, nbytes_of(fields)), owner, fields).moved == 3);
  CHECK(held() == before);
  check_whole_index(session.directory.path());
  const auto of_moved = index.held_by({index.resolve("p", by_index({away[5]}), std::vector<std::string>{"a"}).blocks.at(0).ref, BlockRef{7}});
  CHECK(of_moved[0].cells == 3);
  CHECK(of_moved[0].nbytes == 300 + 300 + 32);
  CHECK(of_moved[1].cells == 0);
  // And so does a move to the spill file.
  index.grow_spill(1u << 20);
  for (const Index::PlacedBlock& block : index.blocks_in_memory()) {
    std::vector<Index::BlockMove> moves = {{block.ref, *index.reserve_spill({block.span.nbytes}, owner)[0], false}};
    index.publish_spilled(moves, index.rows_naming({block})[0], owner);
    CHECK(moves[0].moved);
  }
  CHECK(held() == before);
  check_whole_index(session.directory.path());
  for (const RowIndex row : index.list_rows("p").indexes) {
    index.clear_rows("p", by_index({row}));
    CHECK(held() < before);
    before = held();
    check_whole_index(session.directory.path());
  }
  CHECK(held() == 0);
}

TEST_CASE("shedding makes room for payload on other nodes by what it holds") {
  Session session;
  Index& index = *session.index;
  index.set_limits("p", rule(10'000, std::nullopt, std::nullopt, WhenExceeded::shed));
  for (int i = 0; i < 5; ++i) put(index, "p", fresh(2), {"a"}, {}, nullptr, 2'000);
  CHECK(put(index, "p", fresh(2), {"a"}, {}, nullptr, 3'000).shed_rows == 3);
  CHECK(index.limit_report("p").live_bytes == 10'000);
  CHECK(index.list_rows("p").indexes == range(3, 9));
  check_whole_index(session.directory.path());
}

TEST_CASE("a size on other nodes is one of a block, and one that can be") {
  Session session;
  Index& index = *session.index;
  tq::PublishRequest bare = request_of("p", fresh(1));
  bare.elsewhere_bytes = 1;
  CHECK(error_of([&] { index.publish(bare); }).code == ErrorCode::invalid);
  CHECK(error_of([&] { put(index, "p", fresh(1), {"a"}, {}, nullptr, tq::index::max_elsewhere_bytes + 1); }).code == ErrorCode::invalid);
  put(index, "p", fresh(1), {"a"}, {}, nullptr, tq::index::max_elsewhere_bytes);
  put(index, "p", fresh(0), {"a"}, {}, nullptr, 5);
  CHECK(index.partition_stats().at(0).live_bytes == tq::index::max_elsewhere_bytes);
  check_whole_index(session.directory.path());
}

TEST_CASE("versions: the oldest row that waits against the newest that was put or said") {
  Session session;
  Index& index = *session.index;
  index.set_limits("p", rule(std::nullopt, std::nullopt, 2, WhenExceeded::raise, {"t"}));
  put(index, "p", fresh(2), {"a"}, versions(2, 1));
  put(index, "p", fresh(2), {"a"}, versions(2, 3));
  CHECK(error_of([&] { put(index, "p", fresh(1), {"a"}, versions(1, 4)); }).code == ErrorCode::limit_exceeded);
  consume(index, "other", {0, 1});
  CHECK(error_of([&] { put(index, "p", fresh(1), {"a"}, versions(1, 4)); }).code == ErrorCode::limit_exceeded);
  consume(index, "t", {0, 1});
  put(index, "p", fresh(1), {"a"}, versions(1, 4));
  CHECK(figure(error_of([&] { put(index, "p", fresh(1), {"a"}, versions(1, 1)); }), "never") == 1);
  CHECK(index.set_weight_version("p", 100));
  CHECK(index.limit_report("p").newest_version == 100);
  CHECK(figure(error_of([&] { put(index, "p", fresh(1), {"a"}, versions(1, 97)); }), "never") == 1);
  index.task_reset("p", std::nullopt);
  CHECK(index.limit_report("p").oldest_version == 1);
  CHECK(index.limit_report("p").newest_version == 100);
  const auto tag = [](const std::string& value) { return std::vector<std::string>{tag_map({{"weight_version", value}})}; };
  for (const std::string& wrong : {std::string("\xff"), std::string("\xd0\x80"), std::string("\xa1x"), std::string("\xcc"), std::string()}) {
    CHECK(error_of([&] { put(index, "p", fresh(1), {"a"}, tag(wrong)); }).code == ErrorCode::invalid);
  }
  index.set_weight_version("p", 0);
  CHECK(index.merge_tags("p", {2}, tag(std::string("\xcd\x01\x02", 3))) > 0);
  CHECK(index.limit_report("p").newest_version == 258);
  check_whole_index(session.directory.path());
}

TEST_CASE("shedding: the oldest that nobody was given; claims are kept, and those of the dead are not") {
  Session session;
  Index& index = *session.index;
  index.set_limits("p", rule(std::nullopt, 6, std::nullopt, WhenExceeded::shed, {"t"}));
  put(index, "p", fresh(6), {"a"});
  consume(index, "other", {0});
  const tq::TaskSnapshot snapshot = index.task_snapshot("p", "t", {"a"});
  REQUIRE(index.claim({"p", "t", snapshot.task_version, {"a"}, {1, 2}, ""}, owner, 1000));
  CHECK(put(index, "p", fresh(2), {"a"}).shed_rows == 2);
  CHECK(index.list_rows("p").indexes == std::vector<RowIndex>{0, 1, 2, 5, 6, 7});
  CHECK(error_of([&] { put(index, "p", fresh(4), {"a"}); }).code == ErrorCode::limit_exceeded);  // three may go
  CHECK(index.list_rows("p").indexes.size() == 6);
  session.judge.dead.insert(owner);
  CHECK(put(index, "p", fresh(4), {"a"}).shed_rows == 4);
  CHECK(index.list_rows("p").indexes.front() == 0);
  CHECK(index.list_rows("p").indexes[1] == 7);
  CHECK(index.limit_report("p").shed_rows == 6);
  check_whole_index(session.directory.path());
}

TEST_CASE("more rows than one transaction should touch go in several") {
  Session session(4u << 20);
  Index& index = *session.index;
  index.set_limits("p", rule(std::nullopt, 6000, std::nullopt, WhenExceeded::shed));
  put(index, "p", fresh(6000, numbered("k", 6000)), {"a"});
  const PublishResult result = put(index, "p", fresh(5000, numbered("l", 5000)), {"a"});
  CHECK(result.shed_rows == 5000);
  CHECK(index.list_rows("p").indexes.size() == 6000);
  CHECK(index.limit_report("p").unconsumed_rows == 6000);
  CHECK(index.limit_report("p").shed_rows == 5000);
  check_whole_index(session.directory.path());
  index.clear_partition("p");
  check_whole_index(session.directory.path());
  CHECK(index.limit_report("p").shed_rows == 0);
}

TEST_CASE("limits that are set, changed and taken away count what is there") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a"}, versions(10, 5));
  consume(index, "t", {0, 1, 2});
  CHECK(index.limit_report("p").unconsumed_rows == std::nullopt);
  index.set_limits("*", rule(std::nullopt, 3, 1, WhenExceeded::raise));
  CHECK(index.limit_report("p").unconsumed_rows == 7);
  CHECK(index.limit_report("p").newest_version == 5);
  check_whole_index(session.directory.path());
  index.set_limits("p", rule(std::nullopt, 30, std::nullopt, WhenExceeded::raise, {"u"}));
  CHECK(index.limit_report("p").unconsumed_rows == 10);
  CHECK(index.limit_report("p").newest_version == std::nullopt);
  check_whole_index(session.directory.path());
  index.set_limits("p", rule(std::nullopt, std::nullopt, std::nullopt, WhenExceeded::raise));
  CHECK(index.limit_report("p").unconsumed_rows == std::nullopt);
  put(index, "p", fresh(100), {"a"});
  check_whole_index(session.directory.path());
}

TEST_CASE("a full index says what is there, and what a put would need") {
  Session session(2u << 20);
  Index& index = *session.index;
  tq::Error error(ErrorCode::invalid, "");
  for (std::int64_t i = 0;; ++i) {
    try {
      put(index, "p", fresh(50, numbered("a key of some length ", 50, 50 * i)), {"a"});
    } catch (const tq::Error& full) {
      error = full;
      break;
    }
  }
  CHECK(error.code == ErrorCode::index_full);
  CHECK(figure(error, "used") == index.stats().index_used_bytes);
  CHECK(figure(error, "total") == index.stats().index_total_bytes);
  CHECK(figure(error, "wanted") > figure(error, "free"));
  index.clear_partition("p");
  put(index, "p", fresh(50, numbered("k", 50)), {"a"});
  check_whole_index(session.directory.path());
}
