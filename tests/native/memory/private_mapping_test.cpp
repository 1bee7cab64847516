#include "memory/support.hpp"

#include <fstream>

#include "core/memory/lease.hpp"
#include "core/memory/private_mapping.hpp"
#include "core/memory/retire.hpp"

namespace tq_test::private_mapping_test {

using tq::BlockRef;
using tq::Span;

namespace {

constexpr BlockRef block = BlockRef::make(1, 3);
constexpr Span span{(1u << 20) + 192, 100'000};  // begins inside a page, as small blocks do

tq::BlockLease lease_of(const Session& session) {
  auto held = tq::lease_blocks(*session.table, session.leases, std::vector{block});
  REQUIRE(held.has_value());
  return held->at(0);
}
std::shared_ptr<tq::PrivateMapping> view_of(const Session& session) {
  return tq::PrivateMapping::map(session.payload, span, lease_of(session));
}

// KiB of the payload's mappings that are this process's own copies.
std::uint64_t copied_kib(const Session& session) {
  std::ifstream areas("/proc/self/smaps");
  std::uint64_t kib = 0;
  bool of_payload = false;
  for (std::string line; std::getline(areas, line);) {
    const std::size_t colon = line.find(':');
    if (line.find('-') < colon) {
      of_payload = line.ends_with(session.directory.path + "/dat");
    } else if (of_payload && line.starts_with("Anonymous:")) {
      kib += std::stoull(line.substr(colon + 1));
    }
  }
  return kib;
}

}  // namespace

TEST_CASE("a view shows the stored bytes, and what is written to it reaches neither store nor another view") {
  Session session;
  session.make_block(block, span, 42);
  const auto first = view_of(session);
  const auto second = view_of(session);
  std::memset(first->at(0, span.nbytes), 1, span.nbytes);
  CHECK(all_equal(second->at(0, span.nbytes), span.nbytes, 42));
  CHECK(all_equal(session.payload->readable(span), span.nbytes, 42));
  CHECK(all_equal(view_of(session)->at(0, span.nbytes), span.nbytes, 42));
  std::memset(second->at(5'000, 10), 2, 10);
  CHECK(all_equal(first->at(0, span.nbytes), span.nbytes, 1));
  CHECK(in_child([&] { return all_equal(view_of(session)->at(0, span.nbytes), span.nbytes, 42) ? 0 : 1; }) == 0);
}

TEST_CASE("a view keeps its block leased until it dies, on whatever thread") {
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  auto copy = view;
  CHECK(session.leases->held() == 1);
  const auto retire = [&] { return tq::unleased_of_retired(*session.table, *session.clients, std::vector{block}); };
  view.reset();
  CHECK(retire().empty());
  std::thread([gone = std::move(copy)]() mutable { gone.reset(); }).join();
  CHECK(session.leases->held() == 0);
  CHECK(retire() == std::vector{block});
}

TEST_CASE("a view is unmapped before its lease goes") {
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  for (const char* point : {"view.before_unmap", "view.unmapped"}) tq::arm_pause(point, tq::PauseAction::stop);
  std::thread dropper([&] { view.reset(); });
  for (const char* point : {"view.before_unmap", "view.unmapped"}) {
    REQUIRE(eventually([&] { return tq::is_paused(point); }));
    CHECK(tq::unleased_of_retired(*session.table, *session.clients, std::vector{block}).empty());
    tq::resume_pause(point);
  }
  dropper.join();
  CHECK(session.leases->held() == 0);
}

TEST_CASE("a view outlives everything else of its client") {
  auto session = std::make_unique<Session>();
  session->make_block(block, span, 42);
  const auto view = view_of(*session);
  const auto bytes = tq::read_only_view(session->payload, span, lease_of(*session), 100, 50);
  session->payload.reset();
  session->leases.reset();
  session->control.reset();
  CHECK(all_equal(view->at(0, span.nbytes), span.nbytes, 42));
  CHECK(all_equal(bytes.get(), 50, 42));
  CHECK(session->lease_files() == 1);
}

TEST_CASE("reading a view copies nothing") {
  Session session;
  const Span large{0, 6u << 20};
  session.make_block(block, large, 42);
  std::vector<std::shared_ptr<tq::PrivateMapping>> views;
  for (int i = 0; i < 10; ++i) {
    views.push_back(tq::PrivateMapping::map(session.payload, large, lease_of(session)));
    CHECK(all_equal(views.back()->at(0, large.nbytes), large.nbytes, 42));
  }
  CHECK(copied_kib(session) == 0);
  std::memset(views[3]->at(1u << 20, 1), 1, 1);
  CHECK(copied_kib(session) == tq::page_bytes() / 1024);
}

TEST_CASE("bytes outside the block are refused") {
  Session session;
  session.make_block(block, span, 42);
  const auto view = view_of(session);
  CHECK(error_of([&] { view->at(0, span.nbytes + 1); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { view->at(span.nbytes + 1, 0); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { view->at(1, ~std::uint64_t{0}); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { tq::read_only_view(session.payload, span, lease_of(session), 0, span.nbytes + 1); }).code ==
        tq::ErrorCode::invalid);
  CHECK(error_of([&] { tq::PrivateMapping::map(session.payload, span, tq::BlockLease()); }).code == tq::ErrorCode::closed);
  CHECK(view->at(span.nbytes, 0) != nullptr);
  CHECK(session.leases->held() == 1);
}

TEST_CASE("views stop before the system's limit on mappings, and go on when some died") {
  Session session;
  session.make_block(block, span, 42);
  const std::int64_t before = tq::mapping_budget::alive();
  CHECK(tq::mapping_budget::limit() > 1'000);
  tq::mapping_budget::set_limit_for_tests(before + 3);
  std::vector<std::shared_ptr<tq::PrivateMapping>> views;
  for (int i = 0; i < 3; ++i) views.push_back(view_of(session));
  CHECK_THROWS_AS(view_of(session), tq::MappingLimitError);
  CHECK(session.leases->held() == 3);  // the failed one holds nothing
  views.pop_back();
  views.push_back(view_of(session));
  views.clear();
  tq::mapping_budget::set_limit_for_tests(0);
  CHECK(tq::mapping_budget::alive() == before);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_CASE("the real limit on mappings is never reached by views") {
  Session session;
  session.make_block(block, span, 42);
  CHECK(in_child([&] {
          std::vector<std::shared_ptr<tq::PrivateMapping>> views;
          try {
            for (;;) views.push_back(view_of(session));
          } catch (const tq::MappingLimitError&) {
          }
          // Room is left for the rest of the process.
          std::thread([] {}).join();
          return static_cast<std::int64_t>(views.size()) == tq::mapping_budget::limit() ? 0 : 1;
        }) == 0);
}
#endif

}  // namespace tq_test::private_mapping_test
