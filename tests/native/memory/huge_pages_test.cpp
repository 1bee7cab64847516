#include "core/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "core/memory/private_mapping.hpp"
#include "core/memory/lease.hpp"
#include "memory/support.hpp"

namespace tq_test::huge_pages_test {

using tq::Span;

namespace {

// Touched memory from the start of the segment, byte i of value i / 4096.
void fill(const tq::PayloadSegment& payload, std::uint64_t nbytes) {
  std::byte* data = payload.writable({0, nbytes});
  for (std::uint64_t i = 0; i < nbytes; ++i) data[i] = static_cast<std::byte>(i / 4096);
}

bool as_filled(const std::byte* data, std::uint64_t nbytes) {
  for (std::uint64_t i = 0; i < nbytes; ++i) {
    if (data[i] != static_cast<std::byte>(i / 4096)) return false;
  }
  return true;
}

// Goes through everything that is touched; how much there was.
std::uint64_t make_all_huge(tq::PayloadSegment& payload) {
  std::uint64_t total = 0;
  for (int idle = 0; idle < 4;) {  // a page that the kernel uses just now is tried three times
    const std::uint64_t done = payload.make_huge(4u << 20);
    total += done;
    idle = done == 0 ? idle + 1 : 0;
  }
  return total;
}

}  // namespace

TEST_CASE("a file is mapped where its huge pages fit") {
  Session session;
  const std::uint64_t unit = tq::huge_pages::nbytes();
  if (unit == 0) return;
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{65536}, unit + 4096}) {
    void* mapped = tq::huge_pages::map_file(2 * unit, PROT_READ, MAP_SHARED | MAP_NORESERVE, session.payload_fd.get(), offset);
    REQUIRE(mapped != MAP_FAILED);
    CHECK(reinterpret_cast<std::uint64_t>(mapped) % unit == offset % unit);
    ::munmap(mapped, 2 * unit);
  }
  void* small = tq::huge_pages::map_file(4096, PROT_READ, MAP_SHARED, session.payload_fd.get(), 0);
  REQUIRE(small != MAP_FAILED);
  ::munmap(small, 4096);
  CHECK(tq::huge_pages::map_file(4096, PROT_READ, MAP_SHARED, -1, 0) == MAP_FAILED);
}

TEST_CASE("more mappings than the window of hints has places for") {
  Session session;
  const std::uint64_t unit = tq::huge_pages::nbytes();
  if (unit == 0) return;
  std::vector<void*> mapped;
  for (int i = 0; i < 20000; ++i) {  // 20,000 x (2 + 2) MiB are more than 64 GiB
    void* at = tq::huge_pages::map_file(unit, PROT_READ, MAP_SHARED | MAP_NORESERVE, session.payload_fd.get(), 0);
    REQUIRE(at != MAP_FAILED);
    mapped.push_back(at);
    if (mapped.size() == 100) {
      for (void* old : mapped) ::munmap(old, unit);
      mapped.clear();
    }
  }
  for (void* old : mapped) ::munmap(old, unit);
}

TEST_CASE("making huge pages changes no byte of anybody") {
  Session session;
  tq::PayloadSegment& payload = *session.payload;
  const Span block{0, 8u << 20};
  fill(payload, block.nbytes);
  payload.note_touched(block);
  const tq::BlockRef ref = tq::BlockRef::make(1, 0);
  session.table->ensure(ref);
  session.table->set_live(ref);
  const auto view = tq::PrivateMapping::map(session.payload, block, tq::lease_own_block(session.leases, ref));
  *view->at(3u << 20, 1) = std::byte{77};  // a private page, which must stay private and as it is
  const std::uint64_t before = payload.resident_bytes();

  const std::uint64_t gone_through = make_all_huge(payload);

  CHECK(payload.resident_bytes() == before);
  CHECK(payload.huge_bytes() <= gone_through);
  CHECK(as_filled(payload.readable(block), block.nbytes));
  CHECK(*view->at(3u << 20, 1) == std::byte{77});
  CHECK(as_filled(view->at(0, 3u << 20), 3u << 20));
  const auto fresh = tq::PrivateMapping::map(session.payload, block, tq::lease_own_block(session.leases, ref));
  CHECK(as_filled(fresh->at(0, block.nbytes), block.nbytes));
  *fresh->at(5u << 20, 1) = std::byte{78};  // splits the entry of this mapping only
  CHECK(as_filled(payload.readable(block), block.nbytes));
  CHECK(*view->at(5u << 20, 1) != std::byte{78});
  CHECK(payload.make_huge(1u << 30) == 0);  // nothing is left

  MESSAGE("huge pages made: " << payload.huge_bytes() << " of " << gone_through << " bytes");
}

TEST_CASE("writers and readers go on while pages are made huge") {
  Session session(16u << 20);
  tq::PayloadSegment& payload = *session.payload;
  const std::uint64_t nbytes = 16u << 20;
  std::memset(payload.writable({0, nbytes}), 0, nbytes);
  payload.note_touched({0, nbytes});
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0};
  std::thread writer([&] {
    auto* words = reinterpret_cast<std::uint64_t*>(payload.writable({0, nbytes}));
    while (!stop.load()) {
      for (std::uint64_t i = 0; i < nbytes / 8; i += 509) std::atomic_ref(words[i]).fetch_add(1, std::memory_order_relaxed);
      rounds.fetch_add(1);
    }
  });
  REQUIRE(eventually([&] { return rounds.load() > 2; }));
  make_all_huge(payload);
  stop.store(true);
  writer.join();
  const auto* words = reinterpret_cast<const std::uint64_t*>(payload.readable({0, nbytes}));
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < nbytes / 8; i += 509) wrong += words[i] != rounds.load();
  CHECK(wrong == 0);
}

TEST_CASE("trimmed memory is no longer counted as huge and is made huge again") {
  Session session;
  tq::PayloadSegment& payload = *session.payload;
  fill(payload, 8u << 20);
  payload.note_touched({0, 8u << 20});
  make_all_huge(payload);
  const std::uint64_t huge = payload.huge_bytes();
  const std::uint64_t before = payload.resident_bytes();
  const Span tail{4u << 20, 4u << 20};
  CHECK(payload.punch(tail) == tail.nbytes);
  CHECK(payload.resident_bytes() == before - tail.nbytes);
  CHECK(payload.huge_bytes() <= 4u << 20);
  CHECK(as_filled(payload.readable({0, tail.offset}), tail.offset));
  REQUIRE(payload.back(tail));
  fill(payload, 8u << 20);
  payload.note_touched({0, 8u << 20});
  make_all_huge(payload);
  CHECK(payload.huge_bytes() == huge);
  CHECK(as_filled(payload.readable({0, 8u << 20}), 8u << 20));
}

}  // namespace tq_test::huge_pages_test
