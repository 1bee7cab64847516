#include <algorithm>
#include <chrono>
#include <thread>

#include "core/index/txn.hpp"

namespace tq::index {

bool wait_for_readers(Env& env, unsigned tries) {
  constexpr unsigned max_tries = 500;
  if (tries >= max_tries) return false;
  {
    const ReadTxn txn(env);
    if (txn.used_pages() + reserve_pages(env.total_pages()) / 2 > env.total_pages()) return false;
  }
  // Dead readers pin pages for ever, living ones for a read's length: microseconds, unless the system is busy elsewhere.
  if (tries % 16 != 0 || env.check_readers() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(tries + 1, 10u)));
  }
  return true;
}

}  // namespace tq::index
