// The map is full of pages that a reader keeps: who it is, and how long a write waits for it.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <thread>

#include "core/index/txn.hpp"
#include "core/patience.hpp"
#include "core/process_name.hpp"

namespace tq::index {

namespace {

using Clock = std::chrono::steady_clock;

Error kept_by(const Env& env, const OldestReader& reader, double waited_s, std::uint64_t used) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g", waited_s);
  const std::uint64_t total = env.total_pages() * env.page_nbytes();
  Error error(ErrorCode::index_full,
              "the metadata index of the session (" + std::to_string(total) + " bytes) is full of pages that " +
                  process_name(reader.pid) + " keeps from being used again: it is in the middle of a read that began " +
                  std::to_string(reader.commits) + " commits ago and did not end " +
                  (waited_s < 0.001 ? std::string("since an earlier call waited for it")
                                    : "within " + std::string(seconds) + " s of waiting") +
                  ". Have that process continue, or end it");
  error.figures = {{"used", used}, {"free", 0}, {"total", total}, {"reader_pid", static_cast<std::uint64_t>(reader.pid)}};
  return error;
}

struct Listing {
  std::uint64_t last_txn = 0;
  std::optional<OldestReader> oldest;
};

// "       pid thread txnid" in decimal, hexadecimal and decimal; "-" for a slot that reads nothing, and a line of headings.
int look_at_line(const char* line, void* context) {
  auto& listing = *static_cast<Listing*>(context);
  int pid = 0;
  std::uint64_t txn = 0;
  if (std::sscanf(line, "%d %*x %" SCNu64, &pid, &txn) != 2 || txn >= listing.last_txn) return 0;
  if (!listing.oldest || txn < listing.oldest->txn) listing.oldest = OldestReader{pid, txn, listing.last_txn - txn};
  return 0;
}

}  // namespace

std::optional<OldestReader> Env::oldest_reader() const {
  MDB_envinfo info;
  check(mdb_env_info(env_, &info), "look at the readers of the index");
  Listing listing{info.me_last_txnid, std::nullopt};
  if (mdb_reader_list(env_, look_at_line, &listing) < 0) throw_lmdb(EIO, "look at the readers of the index");
  return listing.oldest;
}

bool ReaderWait::once_more(Env& env) {
  constexpr double longest_s = 5.0;
  const Clock::time_point now = Clock::now();
  if (tries_ == 0) {
    began_ = now;
    limit_s_ = std::min(longest_s, Patience::left_s(longest_s));
  }
  std::uint64_t used = 0;
  {
    const ReadTxn txn(env);
    used = txn.used_pages();
    if (used + reserve_pages(env.total_pages()) / 2 > env.total_pages()) return false;
  }
  // Dead readers pin pages for ever, living ones for a read's length: microseconds, unless the system is busy elsewhere.
  if (tries_++ % 16 == 0 && env.check_readers() > 0) return true;
  if (const std::optional<OldestReader> reader = env.oldest_reader()) {
    const double waited_s = std::chrono::duration<double>(now - began_).count();
    if (waited_s >= limit_s_ || env.is_stuck(*reader)) {
      env.note_stuck(*reader);
      throw kept_by(env, *reader, waited_s, used * env.page_nbytes());
    }
  } else if (std::chrono::duration<double>(now - began_).count() >= longest_s) {
    return false;  // no reader, and yet no page: LMDB reuses them two commits after they were freed
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(tries_, 10u)));
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
