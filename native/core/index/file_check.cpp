#include "core/index/file_check.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/index/env.hpp"
#include "core/index/lmdb_file.hpp"
#include "core/index/tree_walk.hpp"

namespace tq::index {
namespace {

using namespace lmdb_file;

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
    if (fd_ < 0 && errno == ENOENT) throw_lmdb(ENOENT, "open " + path);
    struct stat status {};
    if (fd_ < 0 || ::fstat(fd_, &status) != 0) throw Error::system("could not open " + path, errno);
    if (!S_ISREG(status.st_mode)) damaged(path + " is no file");
    nbytes_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  std::uint64_t nbytes() const { return nbytes_; }
  // False: it is shorter.
  bool read(void* to, std::size_t nbytes, std::uint64_t offset) const {
    return ::pread(fd_, to, nbytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(nbytes);
  }

 private:
  int fd_;
  std::uint64_t nbytes_ = 0;
};

// Returns the page size.
std::uint64_t check_meta(const File& file, std::uint64_t offset) {
  Meta meta;
  if (!file.read(&meta, sizeof meta, offset + sizeof(PageHeader))) damaged("its file is shorter than its first pages");
  if (meta.magic != magic) throw Error(ErrorCode::layout_mismatch, "the index is no file of LMDB; attach to a session directory");
  if (meta.version != version) {
    throw Error(ErrorCode::layout_mismatch, "the index is a file of LMDB's format " + std::to_string(meta.version) +
                                                " and this build reads format " + std::to_string(version) +
                                                "; attach with the build that created it");
  }
  if (meta.trees[0].flags != integer_keys || meta.trees[1].flags != 0) damaged("its first pages describe other trees than LMDB's");
  const std::uint64_t page_nbytes = meta.trees[0].pad;
  if (!std::has_single_bit(page_nbytes) || page_nbytes < 512 || page_nbytes > 65536) damaged("its pages have an impossible size");
  if (file.nbytes() < meta_pages * page_nbytes) damaged("its file is shorter than its first pages");
  // LMDB maps as much as that, before anybody could look.
  if (meta.last_page >= file.nbytes() / page_nbytes) damaged("its last page lies outside of its file");
  return page_nbytes;
}

#if defined(__GLIBC__)
int kind_at(const File& file, std::size_t offset) {
  pthread_mutex_t mutex;
  return file.read(&mutex, sizeof mutex, offset) ? mutex.__data.__kind : -1;
}

// As LMDB makes its mutexes.
int expected_kind() {
  pthread_mutexattr_t attributes;
  pthread_mutex_t mutex;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  return mutex.__data.__kind;
}
#endif

void check_lock_file(const File& file) {
  std::uint32_t n_readers = 0;
  if (!file.read(&n_readers, sizeof n_readers, n_readers_offset)) damaged("its lock file was cut");
  if (file.nbytes() < readers_offset || n_readers > (file.nbytes() - readers_offset) / reader_nbytes) {
    damaged("its lock file counts more readers than it has room for");
  }
#if defined(__GLIBC__) && defined(__x86_64__)
  // glibc ends the process when it meets a mutex whose kind contradicts the rest of it.
  for (const std::size_t offset : {reader_mutex_offset, writer_mutex_offset}) {
    if (kind_at(file, offset) != expected_kind()) damaged("a mutex of its lock file is none");
  }
#endif
}

class ReadMapping {
 public:
  ReadMapping(const File& file, std::uint64_t nbytes) : nbytes_(nbytes) {
    void* data = ::mmap(nullptr, nbytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.fd(), 0);
    if (data == MAP_FAILED) throw Error::system("could not map the index", errno);
    data_ = static_cast<std::byte*>(data);
  }
  ~ReadMapping() { ::munmap(data_, nbytes_); }
  ReadMapping(const ReadMapping&) = delete;
  ReadMapping& operator=(const ReadMapping&) = delete;
  const std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::uint64_t nbytes_;
};

// Of the snapshot of `txn`, whose pages stay as they are while it is open; its meta page is written again two commits later.
Meta meta_of(MDB_txn* txn, const File& file, std::uint64_t page_nbytes) {
  constexpr int attempts = 1000;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const std::uint64_t wanted = mdb_txn_id(txn);
    Meta first;
    Meta second;
    const std::uint64_t offset = (wanted & 1) * page_nbytes + sizeof(PageHeader);
    if (!file.read(&first, sizeof first, offset) || !file.read(&second, sizeof second, offset)) damaged("its file was cut");
    if (first.transaction == wanted && std::memcmp(&first, &second, sizeof first) == 0) return first;
    mdb_txn_reset(txn);
    check(mdb_txn_renew(txn), "open the index");
  }
  damaged("its first pages and its lock file are of different transactions");
}

}  // namespace

void check_files(const std::string& directory) {
  const File data(directory + "/data.mdb");
  const std::uint64_t page_nbytes = check_meta(data, 0);
  if (check_meta(data, page_nbytes) != page_nbytes) damaged("its first pages contradict each other");
  check_lock_file(File(directory + "/lock.mdb"));
}

void check_trees(MDB_txn* txn, const std::string& directory) {
  const File file(directory + "/data.mdb");
  const std::uint64_t page_nbytes = check_meta(file, 0);
  const Meta meta = meta_of(txn, file, page_nbytes);
  const std::uint64_t n_pages = meta.last_page + 1;
  if (n_pages < meta_pages || n_pages > file.nbytes() / page_nbytes) damaged("its last page lies outside of its file");
  const ReadMapping mapping(file, n_pages * page_nbytes);
  TreeWalk walk(mapping.data(), page_nbytes, n_pages, meta.transaction);
  walk.tree(meta.trees[0], TreeWalk::What::free);
  walk.tree(meta.trees[1], TreeWalk::What::databases);
  walk.check_free_pages();
}

}  // namespace tq::index
