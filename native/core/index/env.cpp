#include "core/index/env.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "core/file_size_signal.hpp"
#include "core/index/file_check.hpp"
#include "core/index/slot_lock.hpp"

namespace tq::index {
namespace {

// writemap stays off: a stray pointer in a client cannot damage the index, and pages are written with pwrite.
// NOSYNC: the files live on tmpfs and die with the machine. NOMEMINIT: no time for zeroing what is overwritten.
constexpr unsigned open_flags = MDB_NOSYNC | MDB_NOMETASYNC | MDB_NOTLS | MDB_NOMEMINIT | MDB_NORDAHEAD;

std::atomic<unsigned> fork_epoch{0};

struct EnvCloser {
  void operator()(MDB_env* env) const { mdb_env_close(env); }
};
using EnvHandle = std::unique_ptr<MDB_env, EnvCloser>;

EnvHandle make_env(std::uint64_t map_bytes) {
  MDB_env* raw = nullptr;
  check(mdb_env_create(&raw), "make an environment for the index");
  EnvHandle env(raw);
  check(mdb_env_set_maxdbs(raw, n_databases), "size the index");
  check(mdb_env_set_maxreaders(raw, Env::max_readers), "size the index");
  check(mdb_env_set_mapsize(raw, map_bytes), "size the index");
  return env;
}

void open_env(MDB_env* env, const std::string& directory, const char* what) {
  check(mdb_env_open(env, directory.c_str(), open_flags, 0600), what);
  // LMDB leaves this one descriptor to programs that are executed: they would keep the memory of a session that has ended.
  int fd = -1;
  check(mdb_env_get_fd(env, &fd), what);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void open_databases(MDB_txn* txn, unsigned flags, MDB_dbi* dbis) {
  for (unsigned i = 0; i < n_databases; ++i) check(mdb_dbi_open(txn, database_names[i], flags, &dbis[i]), "open the index");
}

// Slots of processes that ended without closing are freed only by a check: it comes before giving up.
int begin_read(MDB_env* env, MDB_txn** txn) {
  const int rc = mdb_txn_begin(env, nullptr, MDB_RDONLY, txn);
  if (rc != MDB_READERS_FULL) return rc;
  int dead = 0;
  check(mdb_reader_check(env, &dead), "check the readers of the index");
  return mdb_txn_begin(env, nullptr, MDB_RDONLY, txn);
}

void allocate_file(int fd, std::uint64_t nbytes, const std::string& path) {
  const FileSizeSignal no_signal;
  if (const int rc = posix_fallocate(fd, 0, static_cast<off_t>(nbytes)); rc != 0) {
    throw Error::system("could not reserve " + std::to_string(nbytes) + " bytes for the index file " + path +
                            ": is the file system full? Free room there or ask for a smaller index",
                        rc);
  }
}

// The environments of this process. Opening and closing happen under the mutex, so that there never are two of one index.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, Env*> envs;
};
std::atomic<Registry*> registry_now{nullptr};

Registry& registry() {
  [[maybe_unused]] static const bool made = [] {
    registry_now.store(new Registry);
    // In a child the mutex may be held by a thread that does not exist there, in the middle of a change of the map. Then
    // the map is given up: what the child opens it opens anew.
    pthread_atfork(nullptr, nullptr, [] {
      fork_epoch.fetch_add(1, std::memory_order_relaxed);
      Registry* inherited = registry_now.load();
      if (inherited->mutex.try_lock()) {
        inherited->mutex.unlock();
      } else {
        registry_now.store(new Registry);
      }
    });
    return true;
  }();
  return *registry_now.load();
}

// Pools of read transactions that a child inherited: aborting those would write into the parent's reader slots, so they
// are kept, reachable and unused, for the life of the child.
std::vector<void*>& forgotten() {
  static std::vector<void*> pools;
  return pools;
}

}  // namespace

void Env::format(const std::string& directory, std::uint64_t index_bytes) {
  if (index_bytes < min_index_bytes) {
    throw Error(ErrorCode::invalid, "an index of " + std::to_string(index_bytes) + " bytes is too small; it needs at least " +
                                        std::to_string(min_index_bytes));
  }
  index_bytes = (index_bytes + 0xffff) & ~std::uint64_t{0xffff};
  {
    const EnvHandle env = make_env(index_bytes);
    open_env(env.get(), directory, "create the index");
    MDB_txn* txn = nullptr;
    check(mdb_txn_begin(env.get(), nullptr, 0, &txn), "create the index");
    try {
      MDB_dbi dbis[n_databases];
      open_databases(txn, MDB_CREATE, dbis);
    } catch (...) {
      mdb_txn_abort(txn);
      throw;
    }
    check(mdb_txn_commit(txn), "create the index");
    int fd = -1;
    check(mdb_env_get_fd(env.get(), &fd), "create the index");
    allocate_file(fd, index_bytes, directory + "/data.mdb");
  }
  // The lock file holds the reader table: unbacked, a new reader on a full tmpfs would die of SIGBUS. Opened only now that
  // this process has no environment on it (see the top of env.hpp).
  const std::string lock = directory + "/lock.mdb";
  const int fd = ::open(lock.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw Error::system("could not open " + lock, errno);
  struct stat status {};
  try {
    if (fstat(fd, &status) != 0) throw Error::system("could not read the size of " + lock, errno);
    allocate_file(fd, static_cast<std::uint64_t>(status.st_size), lock);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
}

std::shared_ptr<Env> Env::open(const std::string& directory) {
  Registry& all = registry();
  struct stat status {};
  if (stat((directory + "/data.mdb").c_str(), &status) != 0) throw_lmdb(errno, "open the index in " + directory);
  const std::lock_guard lock(all.mutex);
  Env*& slot = all.envs[{status.st_dev, status.st_ino}];
  if (slot == nullptr) {
    std::unique_ptr<Env, void (*)(Env*)> env(new Env(directory), [](Env* failed) { delete failed; });
    check_files(directory);
    env->open_here(/*checked=*/false);
    slot = env.release();
  }
  ++slot->users_;
  return {slot, release};
}

void Env::release(Env* env) noexcept {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (--env->users_ > 0) return;
  std::erase_if(all.envs, [&](const auto& entry) { return entry.second == env; });
  delete env;
}

void Env::open_here(bool checked) {
  struct stat status {};
  if (stat((directory_ + "/data.mdb").c_str(), &status) != 0) throw_lmdb(errno, "open the index in " + directory_);
  const SlotLock lock(directory_);
  EnvHandle env = make_env(static_cast<std::uint64_t>(status.st_size));
  open_env(env.get(), directory_, "open the index");
  MDB_txn* txn = nullptr;
  check(begin_read(env.get(), &txn), "open the index");
  try {
    if (!checked) check_trees(txn, directory_);
    open_databases(txn, 0, dbis_);
    MDB_stat stat_of_main;
    check(mdb_env_stat(env.get(), &stat_of_main), "open the index");
    page_nbytes_ = stat_of_main.ms_psize;
    meta_pages_ = MetaPages(txn, page_nbytes_);
  } catch (...) {
    mdb_txn_abort(txn);
    throw;
  }
  check(mdb_txn_commit(txn), "open the index");  // a commit keeps the handles for the life of the environment
  MDB_envinfo info;
  check(mdb_env_info(env.get(), &info), "open the index");
  total_pages_ = info.me_mapsize / page_nbytes_;
  pool_ = std::make_unique<Pool>();
  fork_epoch_ = current_fork_epoch();
  env_ = env.release();
  find_descriptors();
}

void Env::find_descriptors() {
  int pages = -1;
  check(mdb_env_get_fd(env_, &pages), "open the index");
  const FileIdentity file = FileIdentity::of(pages);
  descriptors_ = {{pages, file}};
  // It keeps a second one for meta pages to itself; nobody else in this process has the file open.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (fd != pages && file.is_of(fd)) descriptors_.emplace_back(fd, file);
  }
}

void Env::check_committed(std::uint64_t id) const {
  if (meta_pages_.have(id)) [[likely]] return;
  if (writes_to_index()) return;  // there was nothing to write
  if (take_back(directory_, id)) throw_descriptor_lost("index in " + directory_);
}

bool Env::has_descriptors() const noexcept {
  return std::all_of(descriptors_.begin(), descriptors_.end(), [](const auto& own) { return own.second.is_of(own.first); });
}

void Env::close_environment() noexcept {
  // LMDB would close numbers that are somebody else's by now: then its maps stay, until the process ends.
  if (env_ != nullptr && has_descriptors()) mdb_env_close(env_);
  env_ = nullptr;
}

Env::~Env() {
  if (env_ == nullptr) return;
  if (fork_epoch_ == current_fork_epoch()) {
    for (MDB_txn* txn : pool_->idle) mdb_txn_abort(txn);
  } else {
    forget_inherited();
  }
  close_environment();
}

void Env::forget_inherited() noexcept {
  // The pool's mutex may be held by a thread that does not exist here: the pool is left as it is and replaced.
  forgotten().push_back(pool_.release());
}

void Env::reopen_in_child() {
  static std::mutex mutex;  // threads of the child may meet here; nobody forks in here
  const std::lock_guard lock(mutex);
  if (fork_epoch_ == current_fork_epoch()) return;
  if (env_ != nullptr) {
    forget_inherited();
    // Closing clears reader slots whose pid is getpid(), hence none of the parent's, and drops none of its record locks.
    close_environment();
  }
  open_here(/*checked=*/true);  // by the parent
}

void Env::throw_gone() const { throw_lmdb(ENOENT, "use the index in " + directory_); }

unsigned Env::current_fork_epoch() noexcept { return fork_epoch.load(std::memory_order_relaxed); }

MDB_txn* Env::take_reader() {
  MDB_txn* txn = nullptr;
  {
    const std::lock_guard lock(pool_->mutex);
    if (!pool_->idle.empty()) {
      txn = pool_->idle.back();
      pool_->idle.pop_back();
    }
  }
  if (txn != nullptr) {
    const int rc = mdb_txn_renew(txn);
    if (rc == MDB_SUCCESS) return txn;
    mdb_txn_abort(txn);
    throw_lmdb(rc, "read the index");
  }
  const SlotLock lock(directory_);
  check(begin_read(env_, &txn), "read the index");
  return txn;
}

void Env::give_reader(MDB_txn* txn) noexcept {
  mdb_txn_reset(txn);
  try {
    const std::lock_guard lock(pool_->mutex);
    pool_->idle.push_back(txn);
  } catch (...) {  // out of memory: this one is not kept
    mdb_txn_abort(txn);
  }
}

int Env::check_readers() {
  const SlotLock lock(directory_);
  int dead = 0;
  check(mdb_reader_check(env_, &dead), "check the readers of the index");
  return dead;
}

}  // namespace tq::index
