#include "memory/support.hpp"

#include <mutex>
#include <set>

#include "core/memory/wake.hpp"

namespace tq_test::control_segment_test {

TEST_CASE("owner ids are unique over threads and processes") {
  Session session;
  std::set<tq::OwnerId> seen;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 500; ++k) {
        const tq::OwnerId id = session.control->next_owner();
        const std::lock_guard lock(mutex);
        CHECK(seen.insert(id).second);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(in_child([&] { return session.control->next_owner() > *seen.rbegin() ? 0 : 1; }) == 0);
  CHECK(session.control->next_owner() > *seen.rbegin() + 1);
}

TEST_CASE("ending a session is seen by everybody and wakes every waiter") {
  Session session;
  CHECK_FALSE(session.control->ended());
  const auto& word = session.control->partition_word(77);
  const std::uint32_t seen = tq::read_word(word);
  const pid_t child = start_child([&] { return tq::wait_word(word, seen, 20) && session.control->ended() ? 0 : 1; });
  session.control->end_session();
  CHECK(finish(child) == 0);
  CHECK(session.control->ended());
}

TEST_CASE("partitions share words modulo their number, tasks share locks by hash") {
  Session session;
  CHECK(&session.control->partition_word(5) == &session.control->partition_word(5 + 1024));
  CHECK(&session.control->partition_word(5) != &session.control->partition_word(6));
  CHECK(&session.control->task_lock(1, "train") == &session.control->task_lock(1, "train"));
}

}  // namespace tq_test::control_segment_test
