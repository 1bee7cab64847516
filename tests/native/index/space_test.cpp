#include <random>

#include "core/index/space.hpp"
#include "index/support.hpp"

using namespace tq_test;

TEST_CASE("large spans are whole pages at page offsets, small ones 64-byte units that share pages") {
  Session session(4u << 20, 1u << 20);
  const Reservation small = reserve(*session.index, 100);
  CHECK(small.span == Span{0, 128});
  const Reservation large = reserve(*session.index, 70'000);
  CHECK(large.span == Span{4096, 73'728});
  // The gap in front of the large one is the best fit for the next small one.
  CHECK(reserve(*session.index, 3'000).span == Span{128, 3'008});
  CHECK(reserve(*session.index, 0).span.nbytes == 64);
  CHECK(reserve(*session.index, 65'535).span.nbytes == 65'536);
  CHECK(session.index->stats().pending_bytes == 128 + 73'728 + 3'008 + 64 + 65'536);
  check_whole_index(session.directory.path());
}

TEST_CASE("what is given back joins its neighbours, and an exact fit is found again") {
  Session session(4u << 20, 1u << 20);
  std::vector<Reservation> all;
  for (int i = 0; i < 8; ++i) all.push_back(reserve(*session.index, 128u << 10));
  CHECK_FALSE(session.index->reserve(1, owner));
  CHECK(session.index->stats().free_bytes == 0);
  CHECK(session.index->stats().largest_free == 0);
  for (const int i : {1, 3, 2}) session.index->abandon(all[static_cast<std::size_t>(i)], owner);
  CHECK(session.index->stats().largest_free == 3 * (128u << 10));
  CHECK_FALSE(session.index->reserve((3u * 128 << 10) + 1, owner));
  CHECK(reserve(*session.index, 3 * (128u << 10)).span.offset == 128u << 10);
  check_whole_index(session.directory.path());
}

TEST_CASE("the smallest span that fits is taken") {
  Session session(4u << 20, 1u << 20);
  std::vector<Reservation> all;
  for (int i = 0; i < 16; ++i) all.push_back(reserve(*session.index, 64u << 10));
  for (const int i : {2, 3, 4, 8, 12, 13}) session.index->abandon(all[static_cast<std::size_t>(i)], owner);
  CHECK(reserve(*session.index, 60'000).span.offset == 8u * 65'536);
  CHECK(reserve(*session.index, 120'000).span.offset == 12u * 65'536);
  CHECK(reserve(*session.index, 150'000).span.offset == 2u * 65'536);
  check_whole_index(session.directory.path());
}

TEST_CASE("a preferred place is taken where it is free as a whole, else the best fit") {
  Session session(4u << 20, 1u << 20);
  const auto at = [&](std::uint64_t nbytes, std::vector<std::uint64_t> preferred) {
    const auto found = session.index->reserve(nbytes, owner, preferred);
    REQUIRE(found.has_value());
    return found->span;
  };
  CHECK(at(65'536, {512u << 10}) == Span{512u << 10, 65'536});
  CHECK(at(65'536, {512u << 10, 256u << 10}) == Span{256u << 10, 65'536});                     // the first is taken
  CHECK(at(65'536, {(256u << 10) - 4096, (512u << 10) + 61'440}).offset != (256u << 10) - 4096);  // both are in part
  CHECK(at(65'536, {(1u << 20) - 4096, 1u << 20, ~std::uint64_t{0} - 4095, 100}).nbytes == 65'536);  // beyond the end, no page
  CHECK(at(64, {(768u << 10) + 64}) == Span{(768u << 10) + 64, 64});
  CHECK(session.index->stats().free_bytes == (1u << 20) - 4 * 65'536 - 64);
  check_whole_index(session.directory.path());
}

TEST_CASE("growing adds free space once, and not beyond the segment") {
  Session session(4u << 20, 1u << 20);
  session.index->grow(1u << 20);
  session.index->grow(1u << 10);
  CHECK(session.index->stats().free_bytes == 1u << 20);
  CHECK(session.index->stats().reserved_bytes == 1u << 20);
  CHECK(error_of([&] { session.index->grow((1u << 20) + 1); }).code == tq::ErrorCode::invalid);
}

TEST_CASE("generations never repeat and slots do, and a full table is an error that says what to do") {
  Session session(4u << 20, 1u << 20, 3);
  const Reservation a = reserve(*session.index, 64);
  const Reservation b = reserve(*session.index, 64);
  reserve(*session.index, 64);
  const tq::Error error = error_of([&] { session.index->reserve(64, owner); });
  CHECK(error.code == tq::ErrorCode::index_full);
  CHECK(std::string(error.what()).find("all 3 blocks") != std::string::npos);
  session.index->abandon(b, owner);
  const Reservation c = reserve(*session.index, 64);
  CHECK(c.block.slot() == b.block.slot());
  CHECK(c.block.generation() > b.block.generation());
  CHECK(c.span == b.span);
  // The old holder gives back late: the span is no longer its own.
  session.index->abandon(b, owner);
  CHECK(session.index->stats().pending_bytes == 3 * 64);
  session.index->abandon(a, owner + 1);
  CHECK(session.index->stats().pending_bytes == 3 * 64);
  check_whole_index(session.directory.path());
}

TEST_CASE("what a dead owner had pending comes back as a whole, what others have stays") {
  Session session(4u << 20);
  std::vector<BlockRef> of_dead;
  for (int i = 0; i < 300; ++i) of_dead.push_back(session.index->reserve(1000, 5)->block);
  const Reservation other = reserve(*session.index, 1000);
  CHECK(session.index->pending_by_owner() ==
        std::vector<std::pair<tq::OwnerId, std::uint64_t>>{{5, 300 * 1024}, {owner, 1024}});
  const std::vector<Reservation> back = session.index->abandon_owner(5);
  CHECK(back.size() == 300);
  CHECK(session.index->abandon_owner(5).empty());
  CHECK(session.index->stats().pending_bytes == 1024);
  CHECK(session.index->block_spans({other.block}) == std::vector<Span>{{}});  // pending: not a block yet
  check_whole_index(session.directory.path());
}

TEST_CASE("random reservations and returns keep the spans tiled") {
  Session session(8u << 20, 64u << 20);
  std::mt19937_64 random(3);
  std::vector<Reservation> held;
  for (int i = 0; i < 3000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      const std::size_t at = random() % held.size();
      session.index->abandon(held[at], owner);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (const auto got = session.index->reserve(random() % (random() % 4 == 0 ? 1'000'000 : 5'000), owner)) {
      held.push_back(*got);
    }
    if (i % 500 == 0) check_whole_index(session.directory.path());
  }
  for (const Reservation& each : held) session.index->abandon(each, owner);
  CHECK(session.index->stats().largest_free == 64u << 20);
  check_whole_index(session.directory.path());
}
