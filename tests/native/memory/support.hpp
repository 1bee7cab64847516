// What the memory tests share: a session made of plain files on tmpfs, and child processes that end.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.hpp"
#include "core/memory/block_table.hpp"
#include "core/memory/control_segment.hpp"
#include "core/memory/lease_directory.hpp"
#include "core/memory/kept_mappings.hpp"
#include "core/memory/lease_file.hpp"
#include "core/memory/payload_segment.hpp"
#include "core/pause.hpp"

namespace tq_test {

// Removed with everything in it by the process that made it.
struct Directory {
  std::string path;
  pid_t maker = ::getpid();
  explicit Directory(const std::string& base = "/dev/shm") : path(base + "/tq-native-test-XXXXXX") {
    REQUIRE(::mkdtemp(path.data()) != nullptr);
  }
  Directory(const Directory&) = delete;
  ~Directory() {
    if (maker == ::getpid()) std::filesystem::remove_all(path);
  }
  tq::FileDescriptor file(const std::string& name) const {
    tq::FileDescriptor fd(::open((path + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(fd.get() >= 0);
    return fd;
  }
};

// True once the condition holds; false after 20 s, so that a broken test ends.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline constexpr std::uint64_t payload_bytes = 32u << 20;

// Three segments and a lease directory, and this process as a client.
struct Session {
  Directory directory;
  std::string name = "native";
  std::string lease_path = directory.path + "/leases";
  tq::FileDescriptor control_fd = directory.file("ctl");
  tq::FileDescriptor table_fd = directory.file("tbl");
  tq::FileDescriptor payload_fd = directory.file("dat");
  std::shared_ptr<tq::ControlSegment> control;
  std::unique_ptr<tq::BlockTable> table;
  std::shared_ptr<tq::PayloadSegment> payload;
  std::shared_ptr<tq::LeaseFile> leases;
  std::unique_ptr<tq::LeaseDirectory> clients;

  explicit Session(std::uint64_t backed = 8u << 20, const std::string& base = "/dev/shm") : directory(base) {
    // What a test before left to the keeper's thread counts in no test's mappings.
    REQUIRE(eventually([] { return tq::mapping_keeper::backlog() == 0; }));
    tq::ControlSegment::format(control_fd.get(), name, payload_bytes, 1u << 20);
    tq::BlockTable::format(table_fd.get(), name);
    tq::PayloadSegment::format(payload_fd.get(), name, payload_bytes);
    std::filesystem::create_directory(lease_path);
    control = std::make_shared<tq::ControlSegment>(control_fd.get(), name);
    table = std::make_unique<tq::BlockTable>(table_fd.get(), name);
    payload = std::make_shared<tq::PayloadSegment>(payload_fd.get(), name);
    if (backed > 0) payload->grow(backed);
    leases = new_client();
    clients = std::make_unique<tq::LeaseDirectory>(lease_path, control);
  }
  std::shared_ptr<tq::LeaseFile> new_client() const { return tq::LeaseFile::create(lease_path, control); }

  // A block as a producer makes it: bytes, then the word.
  void make_block(tq::BlockRef block, tq::Span span, unsigned char value) const {
    std::memset(payload->writable(span), value, span.nbytes);
    table->ensure(block);
    table->set_live(block);
  }
  std::size_t lease_files() const {
    std::size_t n = 0;
    for (const auto& item : std::filesystem::directory_iterator(lease_path)) n += item.is_regular_file();
    return n;
  }
};

// What a client holds, claim by claim.
inline std::vector<tq::BlockRef> blocks_of(const tq::ClientInfo& client) {
  std::vector<tq::BlockRef> blocks;
  for (const tq::HeldLease& lease : client.leased) blocks.push_back(lease.block);
  return blocks;
}

inline bool all_equal(const std::byte* data, std::size_t n, unsigned char value) {
  for (std::size_t i = 0; i < n; ++i) {
    if (data[i] != std::byte{value}) return false;
  }
  return true;
}

// The child's exit code is what `work` returns; 99 when it throws.
inline pid_t start_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child > 0) return child;
  int code = 99;
  try {
    code = work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  } catch (...) {  // doctest's, of a failed REQUIRE
    std::fprintf(stderr, "child: a requirement failed\n");
  }
  ::_exit(code);
}

// Exit code, or minus the signal that ended it.
inline int finish(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
inline int in_child(const std::function<int()>& work) { return finish(start_child(work)); }

// One byte from one process to another.
struct Signal {
  int ends[2] = {-1, -1};
  Signal() { REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); }
  Signal(const Signal&) = delete;
  ~Signal() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void send() const { (void)!::write(ends[1], "x", 1); }
  bool wait() const {  // false when every writer is gone
    char byte = 0;
    return ::read(ends[0], &byte, 1) == 1;
  }
};

// The error that `work` throws; a failed check when it throws none.
template <typename Work>
tq::Error error_of(Work work) {
  try {
    work();
  } catch (const tq::Error& error) {
    return error;
  }
  FAIL("no error was thrown");
  return tq::Error(tq::ErrorCode::invalid, "");
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A tmpfs of its own of so many bytes, mounted on a fresh directory, for tests of a full file system. Only in a child process
// (it changes the mount namespace); false where the system does not allow it.
bool mount_small_tmpfs(const std::string& path, std::uint64_t nbytes);

}  // namespace tq_test
