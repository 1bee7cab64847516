#include "core/memory/kept_mappings.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>

#include "core/memory/lease.hpp"
#include "core/memory/mapping_budget.hpp"
#include "core/memory/private_mapping.hpp"
#include "core/memory/written_pages.hpp"
#include "memory/support.hpp"

namespace tq_test::kept_mappings_test {

using tq::BlockRef;
using tq::PrivateMapping;
using tq::Span;

namespace {

constexpr BlockRef block = BlockRef::make(1, 0);
constexpr Span span{1u << 20, 3u << 20};

struct Viewed : Session {
  Viewed() { make_block(block, span, 42); }
  std::shared_ptr<PrivateMapping> view() const {
    return PrivateMapping::map(payload, span, tq::lease_own_block(leases, block));
  }
  std::byte* base(const PrivateMapping& mapping) const { return mapping.at(0, span.nbytes); }
};

bool keeper_is_through() {
  return eventually([] { return tq::mapping_keeper::backlog() == 0; });
}

long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

}  // namespace

TEST_CASE("written pages of a private mapping are found, in both ways of asking") {
  Session session;
  const std::uint64_t nbytes = 4u << 20;
  std::memset(session.payload->writable({0, nbytes}), 1, nbytes);
  void* mapped = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, session.payload_fd.get(), 65536);
  REQUIRE(mapped != MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(mapped);
  for (const bool may_scan : {true, false}) {
    CHECK_FALSE(tq::has_written_pages(bytes, nbytes, may_scan));  // not mapped at all, or read only
    CHECK(all_equal(bytes, nbytes, 1));
    CHECK_FALSE(tq::has_written_pages(bytes, nbytes, may_scan));
  }
  bytes[nbytes - 1] = std::byte{2};  // in the last page
  for (const bool may_scan : {true, false}) {
    CHECK(tq::has_written_pages(bytes, nbytes, may_scan));
    CHECK_FALSE(tq::has_written_pages(bytes, nbytes - 4096, may_scan));
    CHECK(tq::has_written_pages(bytes + nbytes - 4096, 4096, may_scan));
  }
  ::munmap(mapped, nbytes);
}

TEST_CASE("a mapping that was only read serves the next view of its range") {
  Viewed session;
  auto view = session.view();
  std::byte* first = session.base(*view);
  CHECK(all_equal(first, span.nbytes, 42));
  view.reset();
  CHECK(session.leases->held() == 0);  // at once, not when the keeper has looked
  REQUIRE(keeper_is_through());
  REQUIRE(session.payload->kept().count() == 1);
  std::memset(session.payload->writable(span), 43, span.nbytes);  // the extent is reused meanwhile

  view = session.view();
  CHECK(session.base(*view) == first);
  CHECK(session.payload->kept().count() == 0);
  const long before = faults();
  CHECK(all_equal(session.base(*view), span.nbytes, 43));
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  CHECK(faults() - before < 10);
#else
  CHECK(faults() >= before);
#endif
  const auto second = session.view();  // while the first is alive: a mapping of its own
  CHECK(session.base(*second) != first);
  *session.base(*second) = std::byte{1};
  CHECK(*session.base(*view) == std::byte{43});
}

TEST_CASE("a mapping that was written is never used again") {
  Viewed session;
  for (int round = 0; round < 5; ++round) {
    const auto view = session.view();
    CHECK(all_equal(session.base(*view), span.nbytes, 42));
    session.base(*view)[round << 18] = std::byte{7};
  }
  REQUIRE(keeper_is_through());
  CHECK(session.payload->kept().count() == 0);
}

TEST_CASE("another range does not take it, and what is kept is bounded") {
  const std::int64_t before = tq::mapping_budget::alive();
  {
    Session session;
    tq::KeptMappings& kept = session.payload->kept();
    const auto map = [&](std::uint64_t offset, std::uint64_t nbytes) {
      const Span where{offset, nbytes};
      const BlockRef ref = BlockRef::make(1 + offset, 0);
      return PrivateMapping::map(session.payload, where, tq::lease_own_block(session.leases, ref));
    };
    std::vector<std::shared_ptr<PrivateMapping>> views;
    for (std::uint64_t i = 0; i < 20; ++i) views.push_back(map(i * 4096, 3u << 20));  // 60 MiB of a segment of 32
    views.clear();
    REQUIRE(keeper_is_through());
    CHECK(kept.count() > 0);
    CHECK(kept.count() * (3u << 20) <= payload_bytes);
    CHECK(kept.take(3u << 30, 1u << 20) == nullptr);
    for (std::uint64_t i = 0; i < 200; ++i) views.push_back(map(i * 4096, 1u << 20));
    tq::mapping_budget::set_limit_for_tests(tq::mapping_budget::alive());
    const std::size_t held = kept.count();
    views.push_back(map(0, 2u << 20));  // the kept ones give way
    CHECK(kept.count() < held);
    tq::mapping_budget::set_limit_for_tests(0);
    views.clear();
    REQUIRE(keeper_is_through());
    CHECK(kept.count() <= tq::KeptMappings::max_count);
    kept.clear();
    CHECK(kept.count() == 0);
    views.push_back(map(0, 1u << 20));
    views.clear();
    REQUIRE(keeper_is_through());
  }
  CHECK(eventually([&] { return tq::mapping_budget::alive() == before; }));  // the segment takes the kept ones with it
}

TEST_CASE("a child keeps mappings of its own and never uses what was queued in its parent") {
  Viewed session;
  auto view = session.view();
  CHECK(*session.base(*view) == std::byte{42});
  view.reset();
  REQUIRE(keeper_is_through());
  for (int round = 0; round < 10; ++round) {
    view = session.view();
    *session.base(*view) = round % 2 == 0 ? std::byte{9} : std::byte{42};  // some are written, some untouched
    view.reset();  // queued, or looked at already, when the child is made
    const int code = in_child([&] {
      const auto fresh = session.view();
      const bool stored = all_equal(session.base(*fresh), span.nbytes, 42);
      *session.base(*fresh) = std::byte{1};
      auto other = session.view();
      const bool independent = all_equal(session.base(*other), span.nbytes, 42);
      other.reset();
      return stored && independent && keeper_is_through() && session.payload->kept().count() == 1 ? 0 : 1;
    });
    CHECK(code == 0);
  }
}

TEST_CASE("views taken, read, written and dropped by many threads always show the stored bytes") {
  Viewed session;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (int round = 0; round < 60; ++round) {
        const auto view = session.view();
        std::byte* bytes = session.base(*view);
        for (std::uint64_t i = 0; i < span.nbytes; i += 4096) wrong += bytes[i] != std::byte{42};
        if ((round + number) % 3 == 0) bytes[(static_cast<std::uint64_t>(round) * 40961) % span.nbytes] = std::byte{1};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
  CHECK(keeper_is_through());
}

}  // namespace tq_test::kept_mappings_test
