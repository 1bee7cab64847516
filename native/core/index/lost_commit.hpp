// LMDB writes by number of a descriptor. Where another thread puts another file under that number while a call runs (dup2, or a
// close and an open), the pages and the meta page go there, and yet LMDB counts the transaction in its lock file: the next
// writer of any process would build on the meta page of the commit before the last, and the last one's rows would be gone.
#pragma once

#include <lmdb.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/index/lmdb_file.hpp"

namespace tq::index {

// The two first pages of the index, as this process has them mapped.
class MetaPages {
 public:
  MetaPages() = default;
  MetaPages(MDB_txn* txn, std::uint64_t page_nbytes);  // of a read transaction

  // Transaction `id`, or a later one, was written. A load: asked behind every commit.
  bool have(std::uint64_t id) const {
    const auto* meta = reinterpret_cast<const lmdb_file::Meta*>(first_ + (id & 1) * page_nbytes_ + sizeof(lmdb_file::PageHeader));
    return std::atomic_ref(const_cast<std::uint64_t&>(meta->transaction)).load(std::memory_order_acquire) >= id;
  }

 private:
  std::byte* first_ = nullptr;
  std::uint64_t page_nbytes_ = 0;
};

// Takes transaction `id`, which is not in the index in `directory`, from LMDB's count again; false where it was not counted,
// as there was nothing to write. Inside the write gate. No descriptor is to be trusted: it looks for the mapping of the lock
// file. Error(corrupt) where there is none.
bool take_back(const std::string& directory, std::uint64_t id);

}  // namespace tq::index
