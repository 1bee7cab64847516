#include "memory/support.hpp"

#include <sched.h>

#include <fstream>
#include <numeric>
#include <string>

#include "core/memory/copy.hpp"

namespace tq_test::copy_test {

namespace {

std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = std::byte((i * 31 + i / 4'096 + seed) & 0xff);
  return bytes;
}

// One destination, cut into ranges of the given sizes, from a source that is cut in reverse order.
bool copies(const std::vector<std::uint64_t>& sizes, unsigned seed) {
  const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  const std::vector<std::byte> source = pattern(total, seed);
  std::vector<std::byte> destination(total + 1, std::byte{0});
  std::vector<tq::CopyRange> ranges;
  std::vector<std::byte> expected(total + 1, std::byte{0});
  std::uint64_t to = 0;
  std::uint64_t from = total;
  for (const std::uint64_t n : sizes) {
    from -= n;
    ranges.push_back({destination.data() + to, source.data() + from, n});
    if (n > 0) std::memcpy(expected.data() + to, source.data() + from, n);
    to += n;
  }
  return tq::copy_ranges(ranges) == total && destination == expected;
}

int threads_of_this_process() {
  int n = 0;
  for (const auto& item : std::filesystem::directory_iterator("/proc/self/task")) n += item.is_directory();
  return n;
}

}  // namespace

TEST_CASE("ranges of every size arrive whole, below and above the threshold") {
  CHECK(copies({}, 1));
  CHECK(copies({0, 1, 0, 7, 4'096, 0}, 2));
  CHECK(copies({tq::parallel_copy_min_nbytes - 1}, 3));
  CHECK(copies({tq::parallel_copy_min_nbytes}, 4));
  CHECK(copies({3, 5u << 20, 0, 1, 9u << 20, 12'345, 0}, 5));
  CHECK(copies(std::vector<std::uint64_t>(20'000, 700), 6));
  CHECK(copies({3, 20u << 20, 1, 13u << 20, 12'345}, 7));  // past the caches
}

TEST_CASE("many callers at once: one has the pool, the others copy alone") {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (unsigned i = 0; i < 10; ++i) {
        if (!copies({9u << 20, t, 100, 1u << 20}, t * 100 + i)) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

#if !defined(__SANITIZE_THREAD__)  // it dies ("dup thread") when a forked child starts threads
TEST_CASE("a forked child copies with threads of its own") {
  CHECK(copies({16u << 20}, 1));
  for (int i = 0; i < 5; ++i) {
    CHECK(in_child([] {
            if (!copies({16u << 20}, 2)) return 1;
            return tq::usable_cpus() == 1 || threads_of_this_process() > 1 ? 0 : 2;
          }) == 0);
  }
  CHECK(copies({16u << 20}, 3));
}

TEST_CASE("forks while another thread copies") {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread copier([&] {
    while (!stop) wrong += copies({9u << 20}, 1) ? 0 : 1;
  });
  for (int i = 0; i < 10; ++i) CHECK(in_child([] { return copies({9u << 20}, 2) ? 0 : 1; }) == 0);
  stop = true;
  copier.join();
  CHECK(wrong == 0);
}
#endif

TEST_CASE("on one CPU no thread is started") {
  CHECK(in_child([] {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(static_cast<unsigned>(::sched_getcpu()), &one);
          if (::sched_setaffinity(0, sizeof one, &one) != 0 || tq::usable_cpus() != 1) return 1;
          const int before = threads_of_this_process();
          if (!copies({16u << 20}, 1)) return 2;
          return threads_of_this_process() == before ? 0 : 3;
        }) == 0);
}

TEST_CASE("the pool's threads may run on every CPU but the caller's") {
  if (tq::usable_cpus() == 1) return;
  const auto helpers_are_off = [] {
    copies({8u << 20}, 1);
    bool off = true;
    int helpers = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (name != "tq-copy") continue;
      ++helpers;
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      off = off && ::sched_getaffinity(std::stoi(task.path().filename().string()), sizeof cpus, &cpus) == 0;
      off = off && CPU_COUNT(&cpus) == tq::usable_cpus() - 1;
    }
    return helpers > 0 && off;
  };
  CHECK(eventually(helpers_are_off));  // the threads begin when they get a CPU, and jobs may be refused for a while
}

TEST_CASE("the pool's threads leave signals to the program") {
  CHECK(copies({16u << 20}, 1));
  static std::atomic<pid_t> handled_by{0};
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = [](int) { handled_by = ::gettid(); };
  REQUIRE(::sigaction(SIGUSR1, &action, &old) == 0);
  for (int i = 0; i < 20; ++i) {
    handled_by = 0;
    ::kill(::getpid(), SIGUSR1);
    CHECK(eventually([] { return handled_by != 0; }));
    CHECK(handled_by == ::gettid());
  }
  ::sigaction(SIGUSR1, &old, nullptr);
}

}  // namespace tq_test::copy_test
