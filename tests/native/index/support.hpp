// What the tests of the index share: a directory that goes away, a gate that counts, shorthand for requests.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/index/index.hpp"

namespace tq_test {

using tq::BlockRef;
using tq::FieldLayout;
using tq::Index;
using tq::PublishRequest;
using tq::PublishResult;
using tq::Reservation;
using tq::Resolution;
using tq::RowIndex;
using tq::RowsBy;
using tq::RowSelector;
using tq::Span;

class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Writers of one process; between processes LMDB's own lock is enough for a test.
class CountingGate : public tq::WriteGate {
 public:
  void enter() override {
    mutex_.lock();
    ++entered;
  }
  void leave() noexcept override {
    ++left;
    mutex_.unlock();
  }
  std::atomic<int> entered{0};
  std::atomic<int> left{0};

 private:
  std::mutex mutex_;
};

// Time stands still and nobody dies until a test says so.
class TestJudge : public tq::ClaimJudge {
 public:
  std::int64_t now_ns() const override { return now; }
  bool is_dead(tq::OwnerId owner) const override {
    ++asked;
    return dead.contains(owner);
  }
  std::int64_t now = 1000;
  std::set<tq::OwnerId> dead;
  mutable std::atomic<int> asked{0};
};

// A fresh index with `backed_bytes` of payload and `spill_bytes` of spill file to give out, and headroom behind the payload.
struct Session {
  explicit Session(std::uint64_t index_bytes = 16u << 20, std::uint64_t backed_bytes = std::uint64_t{1} << 34,
                   std::uint32_t max_slots = 1u << 22, std::uint64_t spill_bytes = 0,
                   std::uint64_t headroom_bytes = 0);
  TempDirectory directory;
  CountingGate gate;
  TestJudge judge;
  std::unique_ptr<Index> index;
};

inline constexpr tq::OwnerId owner = 7;

RowSelector fresh(std::int64_t count, std::vector<std::string> keys = {});
RowSelector by_index(std::vector<RowIndex> rows);
RowSelector by_key(std::vector<std::string> keys);
std::vector<RowIndex> range(RowIndex first, std::int64_t count);
std::vector<std::string> numbered(const std::string& prefix, std::int64_t count, std::int64_t first = 0);

// A dense field of 8 bytes a row, field after field.
std::vector<FieldLayout> dense_fields(const std::vector<std::string>& names, std::int64_t n_rows);
std::uint64_t nbytes_of(const std::vector<FieldLayout>& fields);
Reservation reserve(Index& index, std::uint64_t nbytes);
PublishRequest request_of(const std::string& partition, RowSelector rows, std::optional<Reservation> reservation = std::nullopt,
                          std::vector<FieldLayout> fields = {}, std::vector<std::string> tags = {});
// Reserves and publishes dense fields; with `elsewhere` as names of so many bytes on other nodes.
PublishResult put(Index& index, const std::string& partition, const RowSelector& rows, const std::vector<std::string>& fields,
                  const std::vector<std::string>& tags = {}, BlockRef* block = nullptr,
                  std::optional<std::uint64_t> elsewhere = std::nullopt);
std::string tag_map(const std::vector<std::pair<std::string, std::string>>& entries);

// The block and row that field `field` of requested row `position` lies in; a null ref when it is not ready.
struct Cell {
  std::uint64_t block = 0;
  std::int64_t row = 0;
  friend bool operator==(const Cell&, const Cell&) = default;
};
Cell cell_of(const Resolution& answer, std::size_t field, std::int64_t position);

template <class Call>
tq::Error error_of(Call&& call) {
  try {
    call();
  } catch (const tq::Error& error) {
    return error;
  }
  FAIL("no error was raised");
  throw 0;  // not reached
}

// `check_index` on the process's own environment, if it has one.
void check_whole_index(const std::string& directory, bool strong_hash = true);

}  // namespace tq_test
