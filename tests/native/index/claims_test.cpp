#include "core/index/claims.hpp"

#include "core/index/impl.hpp"
#include "index/support.hpp"

using namespace tq_test;

namespace {

constexpr std::int64_t second = 1'000'000'000;

// Claims `rows` of task "t" on partition "p" as a sampler would that just looked.
std::optional<tq::ClaimGrant> claim(Index& index, std::vector<RowIndex> rows, std::int64_t lease_ns = second,
                                    tq::OwnerId by = owner, const std::string& state = "") {
  const auto snapshot = index.task_snapshot("p", "t", {"a"});
  return index.claim({"p", "t", snapshot.task_version, {"a"}, std::move(rows), state}, by, lease_ns);
}
std::vector<RowIndex> ready(Index& index, const std::string& task = "t") { return index.task_snapshot("p", task, {"a"}).ready; }
std::vector<std::uint8_t> consumed(Index& index) { return index.consumption("p", "t").consumed; }
bool is_over(Index& index, std::uint64_t fencing) {
  const auto refused = [](auto&& call) { return error_of(call).code == tq::ErrorCode::claim_over; };
  return refused([&] { index.finish_claim("p", "t", fencing, true); }) &&
         refused([&] { index.finish_claim("p", "t", fencing, false); }) &&
         refused([&] { index.extend_claim("p", "t", fencing, owner, second); });
}

}  // namespace

TEST_CASE("claimed rows are ready for nobody else of the task, and not consumed") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(6), {"a"});
  const auto grant = claim(index, {1, 3, 2}, 5 * second, owner, "state");
  REQUIRE(grant.has_value());
  CHECK(grant->deadline_ns == session.judge.now + 5 * second);
  const auto snapshot = index.task_snapshot("p", "t", {"a"});
  CHECK(snapshot.ready == std::vector<RowIndex>{0, 4, 5});
  CHECK(snapshot.claimed == std::vector<RowIndex>{1, 2, 3});
  CHECK(snapshot.next_lapse_ns == 5 * second);
  CHECK(snapshot.sampler_state == "state");
  CHECK(consumed(index) == std::vector<std::uint8_t>(6));
  CHECK(ready(index, "other") == range(0, 6));
  CHECK_FALSE(index.task_snapshot("p", "other", {"a"}).next_lapse_ns.has_value());
  // Neither claimed nor consumed by anybody else.
  CHECK_FALSE(claim(index, {0, 2}).has_value());
  CHECK_FALSE(index.task_commit("p", "t", snapshot.task_version, {"a"}, {3}, "late"));
  CHECK(index.task_commit("p", "t", snapshot.task_version, {"a"}, {4}, "next"));
  check_whole_index(session.directory.path());
}

TEST_CASE("an acknowledged claim is consumed, one given back is ready at once, and each ends once") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"a"});
  const auto first = claim(index, {0, 1});
  const auto second_claim = claim(index, {2, 3});
  REQUIRE(first.has_value());
  REQUIRE(second_claim.has_value());
  CHECK(second_claim->fencing > first->fencing);
  const auto version = index.partition_version(*index.find_partition("p"));
  index.finish_claim("p", "t", first->fencing, true);
  CHECK(index.partition_version(*index.find_partition("p")) > version);
  CHECK(consumed(index) == std::vector<std::uint8_t>{1, 1, 0, 0});
  CHECK(ready(index).empty());
  index.finish_claim("p", "t", second_claim->fencing, false);
  CHECK(ready(index) == std::vector<RowIndex>{2, 3});
  CHECK(consumed(index) == std::vector<std::uint8_t>{1, 1, 0, 0});
  CHECK(is_over(index, first->fencing));
  CHECK(is_over(index, second_claim->fencing));
  CHECK(is_over(index, 999));
  const auto third = claim(index, {2, 3});
  CHECK(is_over(index, second_claim->fencing));  // the same rows, another number
  index.finish_claim("p", "t", third->fencing, true);
  CHECK(consumed(index) == std::vector<std::uint8_t>{1, 1, 1, 1});
}

TEST_CASE("a claim that ran out is over to the nanosecond, whether or not anybody claimed its rows since") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(2), {"a"});
  const auto grant = claim(index, {0, 1}, 100);
  session.judge.now += 99;
  CHECK(ready(index).empty());
  CHECK(index.task_snapshot("p", "t", {"a"}).next_lapse_ns == 1);
  session.judge.now += 1;
  CHECK(ready(index) == range(0, 2));
  CHECK_FALSE(index.task_snapshot("p", "t", {"a"}).next_lapse_ns.has_value());
  CHECK(is_over(index, grant->fencing));
  CHECK(error_of([&] { index.finish_claim("p", "t", grant->fencing, true); }).what() == doctest::Contains("ran out 0.000 s ago"));
  const auto next = claim(index, {0, 1}, 100);
  CHECK(next->fencing > grant->fencing);
  CHECK(is_over(index, grant->fencing));
  index.finish_claim("p", "t", next->fencing, true);
  CHECK(consumed(index) == std::vector<std::uint8_t>{1, 1});
}

TEST_CASE("a claim of a dead process is over at once") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"a"});
  const auto of_dead = claim(index, {0, 1}, second, 8);
  const auto of_living = claim(index, {2, 3}, second, 9);
  session.judge.dead.insert(8);
  CHECK(ready(index) == std::vector<RowIndex>{0, 1});
  CHECK(is_over(index, of_dead->fencing));
  CHECK(error_of([&] { index.extend_claim("p", "t", of_dead->fencing, 9, second); }).what() == doctest::Contains("is gone"));
  index.finish_claim("p", "t", of_living->fencing, true);
}

TEST_CASE("who extends a claim has it: time and owner") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(1), {"a"});
  const auto grant = claim(index, {0}, 100, 8);
  session.judge.now += 50;
  CHECK(index.extend_claim("p", "t", grant->fencing, 9, 100) == session.judge.now + 100);
  session.judge.dead.insert(8);
  session.judge.now += 99;
  CHECK(ready(index).empty());
  session.judge.dead.insert(9);
  CHECK(ready(index) == range(0, 1));
  CHECK(error_of([&] { claim(index, {0}, 0); }).code == tq::ErrorCode::invalid);
  CHECK(claim(index, {0}, INT64_MAX)->deadline_ns > session.judge.now);  // for ever, and no overflow
}

TEST_CASE("an owner is asked about once in a look, however many claims it has") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(100), {"a"});
  for (RowIndex row = 0; row < 100; row += 2) REQUIRE(claim(index, {row}).has_value());
  session.judge.asked = 0;
  const auto snapshot = index.task_snapshot("p", "t", {"a"});
  CHECK(session.judge.asked == 1);
  CHECK(snapshot.ready.size() == 50);
  CHECK(snapshot.claimed.size() == 50);
}

TEST_CASE("claims that are over are removed, their partitions named once, and no other is touched") {
  Session session;
  Index& index = *session.index;
  const auto claim_one = [&](const std::string& partition, const std::string& task, RowIndex row, std::int64_t lease_ns,
                             tq::OwnerId by) {
    const auto snapshot = index.task_snapshot(partition, task, {"a"});
    return index.claim({partition, task, snapshot.task_version, {"a"}, {row}, ""}, by, lease_ns)->fencing;
  };
  put(index, "p", fresh(4), {"a"});
  put(index, "q", fresh(4), {"a"});
  put(index, "r", fresh(4), {"a"});
  claim_one("p", "t", 0, 100, 8);
  claim_one("p", "u", 0, 100, 8);
  const auto kept = claim_one("p", "t", 1, 1000, 8);
  claim_one("q", "t", 4, 1000, 9);
  claim_one("r", "t", 8, 1000, 10);
  CHECK(index.drop_claims().empty());
  const auto version = index.partition_version(*index.find_partition("p"));
  session.judge.now += 100;
  session.judge.dead.insert(9);
  CHECK(index.drop_claims() == std::vector<std::string>{"p", "q"});
  CHECK(index.partition_version(*index.find_partition("p")) > version);
  CHECK(index.drop_claims().empty());
  index.finish_claim("p", "t", kept, true);
  CHECK(index.drop_claims(10) == std::vector<std::string>{"r"});  // of one who leaves
  CHECK(index.task_snapshot("r", "t", {"a"}).ready.size() == 4);
}

TEST_CASE("many claims that are over go in several transactions") {
  Session session(2u << 20);  // the smaller the index, the less one transaction may remove
  Index& index = *session.index;
  put(index, "p", fresh(1000), {"a"});
  for (RowIndex row = 0; row < 600; ++row) REQUIRE(claim(index, {row}, 100).has_value());
  session.judge.now += 100;
  const int entered = session.gate.entered;
  CHECK(index.drop_claims() == std::vector<std::string>{"p"});
  CHECK(session.gate.entered - entered >= 2);
  CHECK(ready(index).size() == 1000);
  CHECK(index.drop_claims().empty());
}

TEST_CASE("a reset ends the claims of its task, a clear of the partition all of them") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"a"});
  const auto grant = claim(index, {0, 1});
  const auto snapshot = index.task_snapshot("p", "u", {"a"});
  const auto other = index.claim({"p", "u", snapshot.task_version, {"a"}, {0}, ""}, owner, second);
  index.task_reset("p", "t");
  CHECK(ready(index) == range(0, 4));
  CHECK(is_over(index, grant->fencing));
  index.finish_claim("p", "u", other->fencing, true);
  const auto again = claim(index, {0, 1});
  index.clear_partition("p");
  CHECK(is_over(index, again->fencing));
  CHECK(error_of([&] { index.finish_claim("p", "t", again->fencing, true); }).what() == doctest::Contains("was cleared"));
  put(index, "p", fresh(2), {"a"});  // another partition of that name
  CHECK(is_over(index, again->fencing));
  CHECK(ready(index).size() == 2);
  CHECK(index.drop_claims().empty());  // nothing of the old one was left
  check_whole_index(session.directory.path());
}

TEST_CASE("rows cleared while they are claimed are gone; the claim keeps the others") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"a"});
  const auto acked = claim(index, {0, 1});
  const auto given_back = claim(index, {2, 3});
  index.clear_rows("p", by_index({1, 2}));
  index.finish_claim("p", "t", acked->fencing, true);
  index.finish_claim("p", "t", given_back->fencing, false);
  const auto status = index.consumption("p", "t");
  CHECK(status.indexes == std::vector<RowIndex>{0, 3});
  CHECK(status.consumed == std::vector<std::uint8_t>{1, 0});
  CHECK(ready(index) == std::vector<RowIndex>{3});
  check_whole_index(session.directory.path());
}

TEST_CASE("a claim rests on the same things as a commit does") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"a"});
  const auto old = index.task_snapshot("p", "t", {"a"});
  REQUIRE(claim(index, {0}, second, owner, "one").has_value());
  const auto refused = [&](std::uint64_t version, std::vector<std::string> fields, std::vector<RowIndex> rows) {
    return !index.claim({"p", "t", version, std::move(fields), std::move(rows), "two"}, owner, second).has_value();
  };
  CHECK(refused(old.task_version, {"a"}, {1}));
  const auto now = index.task_snapshot("p", "t", {"a"});
  CHECK(refused(now.task_version, {"a", "b"}, {1}));
  CHECK(refused(now.task_version, {"a"}, {1, 99}));
  CHECK(refused(now.task_version, {"a"}, {1, -1}));
  index.clear_rows("p", by_index({3}));
  CHECK(refused(now.task_version, {"a"}, {1, 3}));
  CHECK(index.task_snapshot("p", "t", {"a"}).sampler_state == "one");
  const auto empty = index.claim({"p", "t", now.task_version, {"a"}, {}, "three"}, owner, second);  // state alone
  REQUIRE(empty.has_value());
  CHECK(index.task_snapshot("p", "t", {"a"}).next_lapse_ns == second);  // of the first; this one has nothing to come back
  index.finish_claim("p", "t", empty->fencing, true);
  CHECK(index.task_snapshot("p", "t", {"a"}).sampler_state == "three");
  CHECK_FALSE(index.claim({"nowhere", "t", 0, {"a"}, {}, ""}, owner, second).has_value());
}

TEST_CASE("the bytes of a claim: ranges, joined where they touch; damaged ones are refused") {
  using tq::index::ClaimRecord;
  tq::index::Counters all;
  all.next_row = tq::index::row_limit;
  ClaimRecord record{7, 123, {{5, 1, 0, 0}, {6, 2, 0, 0}, {1000, 4096, 0, 0}}};
  const std::string bytes = record.encode();
  CHECK(bytes.size() == 16 + 2 + 2 + 2);
  const ClaimRecord parsed = ClaimRecord::parse(bytes, all);
  CHECK(parsed.owner == 7);
  CHECK(parsed.deadline_ns == 123);
  REQUIRE(parsed.rows.size() == 2);
  CHECK((parsed.rows[0].row == 5 && parsed.rows[0].count == 3));
  CHECK((parsed.rows[1].row == 1000 && parsed.rows[1].count == 4096));
  CHECK(ClaimRecord::parse(std::string_view(bytes).substr(0, 16), all).rows.empty());
  const auto damaged = [&](std::string_view value) {
    return error_of([&] { ClaimRecord::parse(value, all); }).code == tq::ErrorCode::corrupt;
  };
  CHECK(damaged(std::string_view(bytes).substr(0, 15)));
  CHECK(damaged(std::string_view(bytes).substr(0, 17)));
  CHECK(damaged(bytes.substr(0, 16) + std::string("\1\0", 2)));                                   // no rows
  CHECK(damaged(bytes.substr(0, 16) + std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\1", 11)));  // rows beyond all
}
