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

Error full_index(Env& env, const Error& error) {
  std::uint64_t used = 0;
  {
    const ReadTxn txn(env);
    used = txn.used_pages() * env.page_nbytes();
  }
  const std::uint64_t total = env.total_pages() * env.page_nbytes();
  const std::uint64_t kept = reserve_pages(env.total_pages()) * env.page_nbytes();
  const std::uint64_t free = total > used + kept ? total - used - kept : 0;
  // LMDB does not say how much more a transaction would have needed that met the end of the map.
  std::uint64_t wanted = free + 1;
  for (const auto& [name, value] : error.figures) {
    if (name == "would_use" && value > used) wanted = value - used;
  }
  Error full(ErrorCode::index_full,
             "the metadata index of the session is full: of " + std::to_string(total) + " bytes " + std::to_string(used) +
                 " are used, " + std::to_string(kept) + " are kept for clears and " + std::to_string(free) +
                 " are free; the call needs " + (wanted == free + 1 ? "more" : std::to_string(wanted)) +
                 "; clear rows or partitions that are no longer needed, or start the session with a larger storage.index_size");
  full.figures = {{"used", used}, {"free", free}, {"wanted", wanted}, {"total", total}};
  return full;
}

}  // namespace tq::index
