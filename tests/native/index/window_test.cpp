#include "core/index/space.hpp"
#include "index/support.hpp"

using namespace tq_test;

namespace {

constexpr std::uint64_t mib = 1u << 20;

// Blocks and free pieces one behind the other, as said: positive sizes are blocks of that size, negative ones are free.
struct Layout {
  explicit Layout(const std::vector<std::int64_t>& sizes, std::uint64_t total) : session(16u << 20, total) {
    std::vector<Reservation> gaps;
    for (const std::int64_t size : sizes) {
      if (size < 0) {
        gaps.push_back(reserve(*session.index, static_cast<std::uint64_t>(-size)));
        continue;
      }
      BlockRef block;
      const std::int64_t n_rows = size / 8;
      put(*session.index, "p", fresh(n_rows), {"x"}, {}, &block);
      blocks.push_back(block);
    }
    for (const Reservation& gap : gaps) session.index->abandon(gap, owner);
  }
  Session session;
  std::vector<BlockRef> blocks;
};

}  // namespace

TEST_CASE("a small block amid free room is in the way of nothing that the rest could hold") {
  Layout layout({-120 * static_cast<std::int64_t>(mib), 64}, 256 * mib);
  Index& index = *layout.session.index;
  CHECK_FALSE(index.reserve(240 * mib, owner));
  const auto window = index.cheapest_window(240 * mib, {});
  REQUIRE(window.has_value());
  CHECK(*window == Span{0, 240 * mib});
  // What leaves goes where the window is not.
  const std::vector<Reservation> held = index.reserve_within(*window, owner);
  REQUIRE(held.size() == 2);
  CHECK(held[0].span.nbytes + held[1].span.nbytes == 240 * mib - 64);
  const auto elsewhere = index.reserve(64, owner);
  REQUIRE(elsewhere.has_value());
  CHECK(elsewhere->span.offset >= 240 * mib);
  CHECK_FALSE(index.cheapest_window(256 * mib, {}));
}

TEST_CASE("a window ends with the block that leaves, where the free piece is in front of it") {
  // free 8 | 4 | 1 (leased) | free 4
  const auto m = static_cast<std::int64_t>(mib);
  Layout layout({-8 * m, 4 * m, m}, 17 * mib);
  Index& index = *layout.session.index;
  const auto window = index.cheapest_window(9 * mib, {layout.blocks[1]});
  REQUIRE(window.has_value());
  CHECK(*window == Span{3 * mib, 9 * mib});
  CHECK_FALSE(index.cheapest_window(13 * mib, {layout.blocks[1]}));
}

TEST_CASE("of several windows the one from which least leaves, and never a leased block") {
  // 4 | free 2 | 1 | free 2 | 4
  const auto m = static_cast<std::int64_t>(mib);
  Layout layout({4 * m, -2 * m, m, -2 * m, 4 * m}, 13 * mib);
  Index& index = *layout.session.index;
  const auto window = index.cheapest_window(3 * mib, {});
  REQUIRE(window.has_value());
  CHECK(window->offset >= 4 * mib);
  CHECK(window->offset + window->nbytes <= 9 * mib);
  CHECK(window->nbytes == 3 * mib);
  // With the one in the middle leased, one of the others would have to go, and into half a piece.
  CHECK_FALSE(index.cheapest_window(4 * mib + 4096, {layout.blocks[1]}).has_value());
}

TEST_CASE("a run has as much free as is wanted, and as little else as can be") {
  // free 1 | 4 | free 1 | 2 | free 1 | 2 | free 1 | 1 (leased) | free 3
  const auto m = static_cast<std::int64_t>(mib);
  Layout layout({-m, 4 * m, -m, 2 * m, -m, 2 * m, -m, m}, 16 * mib);
  Index& index = *layout.session.index;
  const std::vector leased{layout.blocks[3]};
  CHECK(index.cheapest_run(2 * mib, 64 * mib, leased) == Span{13 * mib, 3 * mib});
  // Two of four megabytes: the later ones cost less; the first is left out, and the last is behind what is leased.
  CHECK(index.cheapest_run(3 * mib + 1, 64 * mib, leased) == Span{0, 12 * mib});
  CHECK(index.cheapest_run(3 * mib + 1, 8 * mib, leased) == Span{0, 12 * mib});
  CHECK_FALSE(index.cheapest_run(3 * mib + 1, 8 * mib - 1, leased).has_value());
  CHECK_FALSE(index.cheapest_run(5 * mib, 64 * mib, leased).has_value());
  CHECK(index.cheapest_run(5 * mib, 64 * mib, {}) == Span{8 * mib, 8 * mib});
}

TEST_CASE("what leaves has to find room outside of the window") {
  // free 3 | 2 | free 3
  const auto m = static_cast<std::int64_t>(mib);
  Layout layout({-3 * m, 2 * m}, 8 * mib);
  Index& index = *layout.session.index;
  CHECK(index.cheapest_window(5 * mib, {}) == Span{0, 5 * mib});
  CHECK(index.cheapest_window(6 * mib, {}) == Span{0, 6 * mib});
  CHECK_FALSE(index.cheapest_window(6 * mib + 1, {}).has_value());
}
