// Numbered requests: recorded with the change, refused when they come again, forgotten in time.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "core/index/requests.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::ErrorCode;
using tq::RequestId;
using tq::RequestKind;
using tq::index::ArmedRequest;

namespace {

RequestId number(std::uint32_t value) {
  RequestId id{};
  std::copy_n(reinterpret_cast<const char*>(&value), sizeof value, id.begin() + 5);
  return id;
}

// As the context manager of Python does.
class Asked {
 public:
  Asked(Index& index, std::uint32_t value, const std::string& reply = "") : request_(index.request(number(value), reply)) {
    ArmedRequest::arm(request_);
  }
  ~Asked() { request_->close(); }

 private:
  std::shared_ptr<ArmedRequest> request_;
};

tq::RequestRecord found(Index& index, std::uint32_t value) {
  const auto record = index.find_request(number(value));
  REQUIRE(record.has_value());
  return *record;
}

template <class Call>
ErrorCode asked_again(Index& index, std::uint32_t value, Call&& call) {
  const Asked asked(index, value);
  return error_of(call).code;
}

}  // namespace

TEST_CASE("a publication is recorded with its rows in the order of the call, and is not done again") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(3, {"a", "b", "c"}), {"x"});
  PublishResult made;
  {
    const Asked asked(index, 1, "some\0bytes");
    made = put(index, "p", by_key({"new", "b", "a", "newer"}), {"x"});
    put(index, "p", fresh(1), {"x"});  // the second change of the block is nobody's
  }
  CHECK(made.indexes == std::vector<RowIndex>{3, 1, 0, 4});
  const tq::RequestRecord record = found(index, 1);
  CHECK(record.kind == RequestKind::publish);
  CHECK(record.indexes == made.indexes);
  CHECK(record.partition_id == made.partition_id);
  CHECK(record.partition_version == made.partition_version);
  CHECK(record.reply == "some");
  CHECK(!index.find_request(number(2)).has_value());
  const auto before = index.stats();
  CHECK(asked_again(index, 1, [&] { put(index, "p", by_key({"new", "never"}), {"x"}); }) == ErrorCode::already_applied);
  CHECK(asked_again(index, 1, [&] { index.clear_partition("p"); }) == ErrorCode::already_applied);
  CHECK(index.stats().rows == before.rows);
  CHECK(index.stats().used_bytes == before.used_bytes);
  CHECK(index.list_rows("p").indexes == range(0, 6));
  check_whole_index(session.directory.path());
}

TEST_CASE("what is refused is not recorded, and the next change is") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(4), {"x"});
  {
    const Asked asked(index, 1);
    CHECK(error_of([&] { put(index, "p", by_index({9}), {"x"}); }).code == ErrorCode::stale_rows);
    CHECK(!index.task_commit("p", "t", 77, {"x"}, {0}, ""));
    CHECK(!index.find_request(number(1)).has_value());
    const auto grant = index.claim({"p", "t", index.task_snapshot("p", "t", {"x"}).task_version, {"x"}, {3, 1, 2}, "s"}, owner, 1000);
    REQUIRE(grant.has_value());
    const tq::RequestRecord record = found(index, 1);
    CHECK(record.kind == RequestKind::claim);
    CHECK(record.indexes == std::vector<RowIndex>{3, 1, 2});
    CHECK(record.fencing == grant->fencing);
    CHECK(record.deadline_ns == grant->deadline_ns);
  }
  const std::uint64_t fencing = found(index, 1).fencing;
  {
    const Asked asked(index, 2);
    index.finish_claim("p", "t", fencing, true);
  }
  CHECK(asked_again(index, 2, [&] { index.finish_claim("p", "t", fencing, true); }) == ErrorCode::already_applied);
  {
    const Asked asked(index, 3);
    CHECK(index.task_commit("p", "t", index.task_snapshot("p", "t", {"x"}).task_version, {"x"}, {0}, ""));
  }
  CHECK(found(index, 3).kind == RequestKind::consume);
  CHECK(found(index, 3).indexes == std::vector<RowIndex>{0});
  {
    const Asked asked(index, 4);
    CHECK(index.clear_rows("p", by_index({0, 1, 8})).rows == 2);
  }
  CHECK(found(index, 4).rows == 2);
  {
    const Asked asked(index, 5);
    index.clear_partition("no such partition");
  }
  CHECK(found(index, 5).rows == -1);
  {
    const Asked asked(index, 6, "tagged");
    index.merge_tags("p", {2}, {tag_map({{"a", "1"}})});
  }
  CHECK(found(index, 6).reply == "tagged");
  check_whole_index(session.directory.path());
}

TEST_CASE("a thread has one number at a time, for one index, and others have none") {
  Session session;
  Session other;
  {
    const Asked asked(*session.index, 1);
    CHECK(error_of([&] { const Asked second(*session.index, 2); }).code == ErrorCode::invalid);
    put(*other.index, "p", fresh(1), {"x"});
    std::thread([&] { put(*session.index, "p", fresh(1), {"x"}); }).join();
    const pid_t child = fork();
    if (child == 0) _exit(ArmedRequest::of(nullptr) == nullptr && (session.index->reopen_in_child(), put(*session.index, "p", fresh(1), {"x"}), true) ? 0 : 1);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(!session.index->find_request(number(1)).has_value());
    put(*session.index, "p", fresh(1), {"x"});
    CHECK(found(*session.index, 1).indexes == std::vector<RowIndex>{2});
  }
  const auto request = session.index->request(number(3), "");
  ArmedRequest::arm(request);
  request->close();
  CHECK(error_of([&] { ArmedRequest::arm(request); }).code == ErrorCode::invalid);
  put(*session.index, "p", fresh(1), {"x"});
  CHECK(!session.index->find_request(number(3)).has_value());
}

TEST_CASE("of two that ask for the same at the same time, one is served") {
  Session session;
  std::atomic<int> done{0};
  std::atomic<int> refused{0};
  const auto ask = [&] {
    for (std::uint32_t i = 0; i < 100; ++i) {
      const Asked asked(*session.index, i);
      try {
        session.index->publish(request_of("p", fresh(2)));
        ++done;
      } catch (const tq::Error& error) {
        if (error.code == ErrorCode::already_applied) ++refused;
      }
    }
  };
  std::thread first(ask);
  std::thread second(ask);
  first.join();
  second.join();
  CHECK(done == 100);
  CHECK(refused == 100);
  CHECK(session.index->stats().rows == 200);
}

TEST_CASE("old ones are forgotten, a few with each that is recorded, and all by the service") {
  Session session;
  Index& index = *session.index;
  const auto ask = [&](std::uint32_t value) {
    const Asked asked(index, value);
    index.publish(request_of("p", fresh(1)));
  };
  for (std::uint32_t i = 0; i < 10; ++i) ask(i);
  session.judge.now += tq::index::request_kept_ns - 1;
  CHECK(index.drop_requests() == 0);
  ask(10);
  CHECK(index.find_request(number(0)).has_value());
  session.judge.now += 1;
  ask(11);
  CHECK(!index.find_request(number(3)).has_value());
  CHECK(index.find_request(number(4)).has_value());
  check_whole_index(session.directory.path());
  CHECK(index.drop_requests() == 6);
  CHECK(index.find_request(number(10)).has_value());
  ask(0);  // its number is free again
  CHECK(found(index, 0).indexes == std::vector<RowIndex>{12});
  check_whole_index(session.directory.path());
}

TEST_CASE("no more are kept than the index has pages, the newest ones") {
  Session session(2u << 20);
  Index& index = *session.index;
  const std::uint32_t most = (2u << 20) / 4096;
  for (std::uint32_t i = 0; i < most + 30; ++i) {
    const Asked asked(index, i);
    index.merge_tags("p", {}, {});
  }
  CHECK(!index.find_request(number(29)).has_value());
  CHECK(index.find_request(number(30)).has_value());
  CHECK(index.find_request(number(most + 29)).has_value());
  check_whole_index(session.directory.path());
}

TEST_CASE("in a full index each takes the place of an older one") {
  Session session(2u << 20);
  Index& index = *session.index;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const Asked asked(index, i);
    index.publish(request_of("p", fresh(1)));
  }
  CHECK(error_of([&] {
          for (;;) index.publish(request_of("p", fresh(50), std::nullopt, {}, std::vector<std::string>(50, tag_map({{"t", std::string(200, 'x')}}))));
        }).code == ErrorCode::index_full);
  // They may take what is left above the reserve of clears, and no more.
  for (std::uint32_t i = 8; i < 500; ++i) {
    const Asked asked(index, i);
    index.clear_partition("no such partition");
  }
  check_whole_index(session.directory.path());
  const auto stats = index.stats();
  CHECK(stats.index_used_bytes <= stats.index_total_bytes - (tq::index::reserve_pages(512) - 4) * 4096);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < 500; ++i) kept += index.find_request(number(i)).has_value() ? 1u : 0u;
  CHECK(kept > 10);
  CHECK(kept < 450);
  CHECK(index.find_request(number(499)).has_value());
}
