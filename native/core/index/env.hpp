// One LMDB environment, opened once per process and directory, with a pool of reset read transactions.
//
// Why once: LMDB's exclusive-open check is a POSIX record lock on lock.mdb, which the kernel drops when *any* descriptor
// of that file closes in the process. A second environment, closed, would let the next process re-initialise the locks
// under our feet. Two `Index` objects of one process therefore share the environment. Nothing else may open lock.mdb.
#pragma once

#include <lmdb.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/file_identity.hpp"
#include "core/index/lost_commit.hpp"
#include "core/index/tables.hpp"

namespace tq::index {

// Throws the typed error that `rc` means, saying what to do. `doing` completes "could not ...".
[[noreturn]] void throw_lmdb(int rc, const std::string& doing);
inline void check(int rc, const char* doing) {
  if (rc != MDB_SUCCESS) [[unlikely]] throw_lmdb(rc, doing);
}

// A read that is in progress and began before the last commit: pages that were in use then are not used again before it ends.
struct OldestReader {
  pid_t pid = 0;
  std::uint64_t txn = 0;      // the commit that it sees
  std::uint64_t commits = 0;  // how many there were since
};

class Env {
 public:
  static constexpr unsigned max_readers = 4096;
  static constexpr std::uint64_t min_index_bytes = 2u << 20;

  // Creates the files in `directory`, preallocated: LMDB never meets a full tmpfs afterwards.
  static void format(const std::string& directory, std::uint64_t index_bytes);
  static std::shared_ptr<Env> open(const std::string& directory);
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

  // In a forked child: closes the inherited environment and opens it anew. Nothing to do in the process that opened it.
  void reopen_in_child();
  // Called by every transaction: a child that was not reopened yet is, before it touches the parent's reader slots.
  void ensure_own() {
    if (fork_epoch_ != current_fork_epoch()) [[unlikely]] reopen_in_child();
    if (env_ == nullptr) [[unlikely]] throw_gone();
  }

  // Before every call, since LMDB writes by number: Error(closed) where the descriptor was closed in this process by somebody else.
  // (Without syncing it writes meta pages to the same one; the other is only closed by number.)
  void check_descriptor() const {
    if (!writes_to_index()) [[unlikely]] throw_descriptor_lost("index in " + directory_);
  }

  // Behind a commit, inside the gate: the same, where what it wrote went elsewhere. The index is then as it was before it.
  void check_committed(std::uint64_t id) const;

  MDB_env* raw() const { return env_; }
  MDB_dbi dbi(Table table) const { return dbis_[static_cast<unsigned>(database_of(table))]; }
  const MDB_dbi* dbis() const { return dbis_; }
  std::uint64_t total_pages() const { return total_pages_; }
  std::uint64_t page_nbytes() const { return page_nbytes_; }

  // A read transaction, renewed from the pool or begun. Given back reset: its reader slot stays ours, pinning nothing.
  MDB_txn* take_reader();
  void give_reader(MDB_txn* txn) noexcept;
  int check_readers();
  // A look at every slot in use, without a lock.
  std::optional<OldestReader> oldest_reader() const;
  // Whether a call of this process has waited for this read before, in vain. Relaxed: a wrong answer costs one wait.
  bool is_stuck(const OldestReader& reader) const {
    return stuck_txn_.load(std::memory_order_relaxed) == reader.txn && stuck_pid_.load(std::memory_order_relaxed) == reader.pid;
  }
  void note_stuck(const OldestReader& reader) {
    stuck_txn_.store(reader.txn, std::memory_order_relaxed);
    stuck_pid_.store(reader.pid, std::memory_order_relaxed);
  }

 private:
  struct Pool {
    std::mutex mutex;
    std::vector<MDB_txn*> idle;
  };

  explicit Env(std::string directory) : directory_(std::move(directory)) {}
  ~Env();  // by the last user, under the registry's mutex
  static void release(Env* env) noexcept;
  void open_here(bool checked);  // `checked`: by whoever opened it first
  void forget_inherited() noexcept;
  void find_descriptors();
  bool writes_to_index() const noexcept { return descriptors_.front().second.is_of(descriptors_.front().first); }
  bool has_descriptors() const noexcept;
  void close_environment() noexcept;
  [[noreturn]] void throw_gone() const;
  static unsigned current_fork_epoch() noexcept;

  std::string directory_;
  MDB_env* env_ = nullptr;
  MDB_dbi dbis_[n_databases] = {};
  std::uint64_t total_pages_ = 0;
  std::uint64_t page_nbytes_ = 0;
  MetaPages meta_pages_;
  unsigned fork_epoch_ = 0;
  std::vector<std::pair<int, FileIdentity>> descriptors_;  // LMDB's; first the one it writes to
  std::atomic<std::uint64_t> stuck_txn_{0};
  std::atomic<pid_t> stuck_pid_{0};
  unsigned users_ = 0;  // guarded by the registry's mutex
  std::unique_ptr<Pool> pool_;
};

}  // namespace tq::index
