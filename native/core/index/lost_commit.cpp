#include "core/index/lost_commit.hpp"

#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>

#include "core/error.hpp"

namespace tq::index {
namespace {

using namespace lmdb_file;

// Where this process has the beginning of that file mapped and shared; null where it has not.
std::byte* mapped(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return nullptr;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uint64_t offset = 0;
    std::uint64_t inode = 0;
    char kinds[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%*x %4s %" SCNx64 " %*x:%*x %" SCNu64, &begin, kinds, &offset, &inode) != 4) continue;
    if (inode == status.st_ino && offset == 0 && kinds[3] == 's' && line.ends_with(path)) return reinterpret_cast<std::byte*>(begin);
  }
  return nullptr;
}

struct CursorCloser {
  MDB_cursor* cursor = nullptr;
  ~CursorCloser() {
    if (cursor != nullptr) mdb_cursor_close(cursor);
  }
};

}  // namespace

MetaPages::MetaPages(MDB_txn* txn, std::uint64_t page_nbytes) : page_nbytes_(page_nbytes) {
  // Where the map begins LMDB does not say. Every page has its number, and any record tells where its page is.
  constexpr MDB_dbi databases = 1;
  CursorCloser closer;
  MDB_val key{};
  MDB_val value{};
  int rc = mdb_cursor_open(txn, databases, &closer.cursor);
  if (rc == MDB_SUCCESS) rc = mdb_cursor_get(closer.cursor, &key, &value, MDB_FIRST);
  if (rc != MDB_SUCCESS) throw Error(ErrorCode::corrupt, std::string("could not open the index: ") + mdb_strerror(rc));
  auto* const page = static_cast<std::byte*>(value.mv_data) - reinterpret_cast<std::uintptr_t>(value.mv_data) % page_nbytes;
  first_ = page - reinterpret_cast<const PageHeader*>(page)->number * page_nbytes;
}

bool take_back(const std::string& directory, std::uint64_t id) {
  std::byte* const lock = mapped(directory + "/lock.mdb");
  if (lock == nullptr) {
    throw Error(ErrorCode::corrupt, "the descriptor of the index in " + directory +
                                        " was closed in this process while it wrote; end this session and start a new one");
  }
  std::uint64_t counted = id;
  const std::atomic_ref count(*reinterpret_cast<std::uint64_t*>(lock + transaction_offset));
  return count.compare_exchange_strong(counted, id - 1, std::memory_order_acq_rel);
}

}  // namespace tq::index
