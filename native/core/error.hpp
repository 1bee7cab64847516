// One exception type for the core; the code says which Python class of transferqueue.errors it becomes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tq {

enum class ErrorCode {
  storage_full,         // StorageFullError: numbers in `figures` (used live leased free wanted total ...)
  index_full,           // StorageFullError("index")
  limit_exceeded,       // LimitExceededError: partition, limit and what to do in `names`, numbers in `figures`
  already_applied,      // _native.AlreadyApplied: a request that is on record
  stale_rows,           // StaleMetadataError: `rows` no longer exist
  claim_over,           // StaleMetadataError: the claim lapsed, or was finished
  key_not_found,        // KeyNotFoundError: `names`
  partition_not_found,  // PartitionNotFoundError
  session_not_found,    // SessionNotFoundError: the session was ended or its files are gone
  layout_mismatch,      // LayoutMismatchError: other version or build, other pid namespace
  corrupt,              // CorruptSegmentError
  timeout,              // TransferTimeoutError
  closed,               // ClosedError: used after close
  invalid,              // ValueError
  system,               // OSError with errno_value
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code(code) {}
  static Error system(const std::string& what, int errno_value) {
    Error error(ErrorCode::system, what);
    error.errno_value = errno_value;
    return error;
  }

  ErrorCode code;
  int errno_value = 0;
  std::vector<std::int64_t> rows;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::uint64_t>> figures;
  bool nothing_done = false;         // of a timeout: the call may begin anew (FirstWait)
  const char* resource = nullptr;  // what is full, where it is not the one that the code says
};

}  // namespace tq
