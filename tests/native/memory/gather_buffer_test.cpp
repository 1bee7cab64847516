#include "memory/support.hpp"

#include <atomic>
#include <thread>

#include "core/memory/gather_buffer.hpp"

namespace tq_test::gather_buffer_test {

using tq::gather_buffer;
using tq::pooled_gather_nbytes;

namespace {

constexpr std::uint64_t kib = 1u << 10;
constexpr std::uint64_t large = 512 * kib;

void fill(const std::shared_ptr<std::byte>& buffer, std::uint64_t nbytes, int value) { std::memset(buffer.get(), value, nbytes); }

}  // namespace

TEST_CASE("buffers of every size are aligned and writable to their end") {
  for (const std::uint64_t nbytes : {std::uint64_t{1}, 63 * kib, 128 * kib, 3 * kib * kib + 1}) {
    const auto buffer = gather_buffer(nbytes);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.get()) % 64 == 0);
    fill(buffer, nbytes, 7);
    CHECK(all_equal(buffer.get(), nbytes, 7));
  }
}

TEST_CASE("a buffer is recycled when its last owner is gone, and not before") {
  tq::trim_gather_pool();
  auto first = gather_buffer(large);
  std::byte* const address = first.get();
  const auto also = first;
  first.reset();
  CHECK(pooled_gather_nbytes() == 0);
  CHECK(gather_buffer(large).get() != address);
  std::shared_ptr<void> last = also;
  CHECK(pooled_gather_nbytes() == large);  // of the one in between
}

TEST_CASE("about the same size finds it again, another one does not") {
  tq::trim_gather_pool();
  const std::byte* const address = gather_buffer(large).get();
  CHECK(pooled_gather_nbytes() == large);
  CHECK(gather_buffer(large - 60 * kib).get() == address);
  CHECK(gather_buffer(large + 64 * kib).get() != address);
  CHECK(gather_buffer(large / 4).get() != address);
  CHECK(tq::trim_gather_pool() > large);
  CHECK(pooled_gather_nbytes() == 0);
}

TEST_CASE("what waits is bounded; the oldest goes first") {
  tq::trim_gather_pool();
  std::vector<std::shared_ptr<std::byte>> held;
  for (std::uint64_t i = 0; i < 80; ++i) held.push_back(gather_buffer(4 * kib * kib));
  const std::byte* const youngest = held.back().get();
  for (auto& buffer : held) buffer.reset();
  CHECK(pooled_gather_nbytes() <= tq::gather_pool_limit_nbytes);
  CHECK(gather_buffer(4 * kib * kib).get() == youngest);
  gather_buffer(tq::gather_pool_limit_nbytes + 1);  // too large to wait
  CHECK(pooled_gather_nbytes() <= tq::gather_pool_limit_nbytes);
  held.clear();
  for (std::uint64_t i = 0; i < 200; ++i) held.push_back(gather_buffer(128 * kib));
  held.clear();
  CHECK(pooled_gather_nbytes() <= tq::gather_pool_limit_nbytes);
  tq::trim_gather_pool();
}

TEST_CASE("threads that take and give back never hold one buffer twice") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&wrong, number] {
      for (std::uint64_t round = 0; round < 300; ++round) {
        const std::uint64_t nbytes = large + round % 3 * 64 * kib;
        const auto one = gather_buffer(nbytes);
        const auto two = gather_buffer(nbytes);
        const auto mine = static_cast<std::byte>(number + 1);
        one.get()[0] = two.get()[0] = mine;
        std::this_thread::yield();
        if (one == two || one.get()[0] != mine || two.get()[0] != mine) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a forked child has its own memory, recycled and held") {
  const auto held = gather_buffer(large);
  fill(held, large, 1);
  gather_buffer(large + 64 * kib);
  const auto in_the_child = [&held] {
    const auto again = gather_buffer(large + 64 * kib);
    fill(again, large, 2);
    fill(held, large, 3);
    return all_equal(held.get(), large, 3) && all_equal(again.get(), large, 2) ? 0 : 1;
  };
  CHECK(in_child(in_the_child) == 0);
  CHECK(all_equal(held.get(), large, 1));
}

}  // namespace tq_test::gather_buffer_test
