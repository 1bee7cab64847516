// What an LMDB return code means for the caller.
#include <cerrno>

#include "core/index/env.hpp"

namespace tq::index {

void throw_lmdb(int rc, const std::string& doing) {
  const std::string could_not = "could not " + doing + ": ";
  switch (rc) {
    case MDB_MAP_FULL: {
      Error error(ErrorCode::index_full, could_not + "the metadata index of the session is full; clear rows or partitions that "
                                                     "are no longer needed, or start the session with a larger index");
      error.errno_value = rc;  // tells it from a refusal of our own: see ReaderWait
      throw error;
    }
    case MDB_TXN_FULL:
      throw Error(ErrorCode::index_full,
                  could_not + "one call touches more of the index than a transaction may; split it into several calls");
    case MDB_READERS_FULL:
      throw Error::system(could_not + "all " + std::to_string(Env::max_readers) +
                              " reader slots of the index are taken; close clients or threads that no longer read",
                          EAGAIN);
    case MDB_BAD_RSLOT:
    case MDB_BAD_TXN:
      throw Error(ErrorCode::closed, could_not + "the transaction belongs to another process or failed before; "
                                                 "after a fork the child must attach anew");
    case EBADF:  // it was ours when it was looked at
      throw_descriptor_lost("index");
    case MDB_PANIC:
      throw Error(ErrorCode::corrupt, could_not + "the index failed fatally in this process (a thread died while it wrote); "
                                                  "other processes can go on, this one must be restarted");
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_NOTFOUND:  // a database, or a page of one; a record that is not there is no error here
    case MDB_KEYEXIST:
    case MDB_CURSOR_FULL:
    case MDB_PAGE_FULL:
    case MDB_BAD_VALSIZE:
    case MDB_BAD_DBI:
      throw Error(ErrorCode::corrupt,
                  could_not + "the index is damaged (" + mdb_strerror(rc) + "); end this session and start a new one");
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_MAP_RESIZED:
    case MDB_INCOMPATIBLE:
      throw Error(ErrorCode::layout_mismatch, could_not + "the index was written by another version or is none (" +
                                                  mdb_strerror(rc) + "); attach with the version that created the session");
    case ENOENT:
    case ENOTDIR:
      throw Error(ErrorCode::session_not_found,
                  could_not + "its files are gone: the session was ended or removed; create or join another one");
    default:
      throw Error::system(could_not + mdb_strerror(rc), rc > 0 ? rc : EIO);
  }
}

}  // namespace tq::index
