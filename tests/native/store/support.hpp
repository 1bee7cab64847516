// What the store tests share: a session on tmpfs, and puts and gets of rows that hold one number.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/pause.hpp"
#include "core/store/store.hpp"

namespace tq_test {

inline constexpr std::uint64_t mib = 1u << 20;

// The files of a session, removed with it. Several stores may be attached, also to play several processes.
class SessionDirectory {
 public:
  // `spill_bytes`: of a spill file, here on tmpfs like the rest; 0: none.
  explicit SessionDirectory(std::uint64_t payload_bytes = 16 * mib, std::uint64_t step_bytes = 2 * mib,
                            std::uint64_t spill_bytes = 0) {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
    for (const char* name : {"ctl", "tbl", "dat", "spill"}) {
      if (std::string(name) == "spill" && spill_bytes == 0) break;
      fds_.emplace_back(::open((path_ + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      REQUIRE(fds_.back().get() >= 0);
    }
    tq::Store::format(files(), {payload_bytes, 16 * mib, step_bytes, spill_bytes});
  }
  ~SessionDirectory() { std::filesystem::remove_all(path_); }
  SessionDirectory(const SessionDirectory&) = delete;
  SessionDirectory& operator=(const SessionDirectory&) = delete;

  tq::SessionFiles files() const {
    return {path_, fds_[0].get(), fds_[1].get(), fds_[2].get(), "native", fds_.size() > 3 ? fds_[3].get() : -1};
  }
  int spill_fd() const { return fds_.at(3).get(); }
  std::unique_ptr<tq::Store> attach() const { return std::make_unique<tq::Store>(files()); }

 private:
  std::string path_ = "/dev/shm/tq-native-test-XXXXXX";
  std::vector<tq::FileDescriptor> fds_;
};

inline tq::RowSelector by_key(std::vector<std::string> keys) {
  tq::RowSelector rows;
  rows.by = tq::RowsBy::key;
  rows.keys = std::move(keys);
  return rows;
}
inline tq::RowSelector by_index(std::vector<tq::RowIndex> indexes) {
  tq::RowSelector rows;
  rows.by = tq::RowsBy::index;
  rows.indexes = std::move(indexes);
  return rows;
}
inline tq::RowSelector fresh(std::int64_t count) {
  tq::RowSelector rows;
  rows.count = count;
  return rows;
}
inline std::int64_t size_of(const tq::RowSelector& rows) {
  if (rows.by == tq::RowsBy::fresh) return rows.count;
  return static_cast<std::int64_t>(rows.by == tq::RowsBy::key ? rows.keys.size() : rows.indexes.size());
}

inline std::vector<tq::FieldLayout> one_field(std::int64_t rows, std::uint64_t row_nbytes, const std::string& name = "a") {
  tq::FieldLayout field;
  field.name = name;
  field.row_nbytes = row_nbytes;
  field.data_nbytes = static_cast<std::uint64_t>(rows) * row_nbytes;
  return {field};
}

inline std::shared_ptr<tq::PendingBlock> filled(tq::Store& store, std::uint64_t nbytes, int value,
                                                std::optional<double> timeout_s = 10.0) {
  auto block = store.reserve(nbytes, timeout_s, nullptr);
  const std::vector<std::byte> bytes(nbytes, static_cast<std::byte>(value));
  block->copy_in({{0, reinterpret_cast<std::uint64_t>(bytes.data()), nbytes}});
  return block;
}

// Rows whose every byte is `value`.
inline tq::PublishResult put(tq::Store& store, const std::string& partition, const tq::RowSelector& rows, int value,
                             std::uint64_t row_nbytes = 65536, std::optional<double> timeout_s = 10.0) {
  const std::int64_t n = size_of(rows);
  const auto block = filled(store, static_cast<std::uint64_t>(n) * row_nbytes, value, timeout_s);
  tq::PublishRequest request;
  request.partition = partition;
  request.rows = rows;
  request.fields = one_field(n, row_nbytes);
  return store.publish(request, block.get());
}

// The one value of all bytes of field 0; -1 when they differ or rows are missing.
inline int value_of(const tq::Resolved& resolved, std::size_t rows, std::uint64_t row_nbytes = 65536) {
  std::vector<std::byte> bytes(rows * row_nbytes);
  if (resolved.resolution().fields.empty()) return -1;
  if (resolved.copy_rows(0, resolved.pieces(0), bytes.data(), bytes.size()) != bytes.size()) return -1;
  for (const std::byte byte : bytes) {
    if (byte != bytes[0]) return -1;
  }
  return static_cast<int>(bytes[0]);
}

inline std::uint64_t figure(tq::Store& store, const std::string& name) {
  for (const auto& [key, value] : store.stats()) {
    if (key == name) return value;
  }
  FAIL("no such figure: " << name);
  return 0;
}

inline tq::ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const tq::Error& error) {
    return error.code;
  }
  FAIL("nothing was thrown");
  return tq::ErrorCode::system;
}

inline void run_together(std::vector<std::function<void()>> works) {
  std::vector<std::thread> threads;
  for (auto& work : works) threads.emplace_back(std::move(work));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tq_test
