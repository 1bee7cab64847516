#include "core/memory/lease_file.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "core/error.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/pause.hpp"

namespace tq {

using layout::first_lease_step;
using layout::lease_being_taken;
using layout::lease_entries_offset;
using layout::lease_file_bytes;
using layout::lease_times_offset;
using layout::LeaseFileLayout;
using layout::max_leases;
using layout::SegmentKind;

namespace {

std::uint64_t own_start_time_ticks() noexcept {
  char text[1024];
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* at = std::strrchr(text, ')');  // the command may hold spaces and parentheses
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

std::int64_t realtime_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Both arrays, from entry `first` on; false when the file system is full.
bool back_entries(int fd, std::uint32_t first, std::uint32_t count, const std::string& name) {
  const std::uint64_t at = std::uint64_t{first} * 8;
  const std::uint64_t nbytes = std::uint64_t{count} * 8;
  return back_range(fd, lease_entries_offset + at, nbytes, name) && back_range(fd, lease_times_offset + at, nbytes, name);
}

[[noreturn]] void throw_lease_file_full(const std::string& session, const char* why, std::uint64_t held) {
  Error error(ErrorCode::storage_full, "no further lease for session '" + session + "': " + why + " (" + std::to_string(held) +
                                           " held by this process). Drop views, or read fewer blocks at once");
  error.resource = "lease file";
  error.figures = {{"used", held * 8}, {"free", 0}, {"wanted", 8}, {"total", std::uint64_t{max_leases} * 8}};
  throw error;
}

[[noreturn]] void throw_no_room(const std::string& name, std::uint64_t nbytes) {
  Error error(ErrorCode::storage_full, "the file system has no room for a " + name + " (" + std::to_string(nbytes) +
                                           " bytes), which every process of a session needs. Free room in /dev/shm");
  error.resource = "lease file";
  error.figures = {{"used", 0}, {"free", 0}, {"wanted", nbytes}, {"total", lease_file_bytes}};
  throw error;
}

}  // namespace

// A lease file on disk. Destroying it closes descriptor (and with it, in the last process that has it, the lock) and mapping;
// the file itself goes by its name.
struct LeaseFile::File {
  OwnerId owner = 0;
  FileDescriptor fd;
  SharedMapping mapping;
  std::atomic<std::uint32_t> backed{0};

  LeaseFileLayout& header() const noexcept { return *reinterpret_cast<LeaseFileLayout*>(mapping.data()); }
  std::atomic<std::uint64_t>* entries() const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(mapping.data() + lease_entries_offset);
  }
  std::atomic<std::int64_t>* times() const noexcept {
    return reinterpret_cast<std::atomic<std::int64_t>*>(mapping.data() + lease_times_offset);
  }
  // Never read back from the file: a mark damaged by others must not lead outside the mapping.
  std::uint32_t high_water() const noexcept { return backed.load(std::memory_order_acquire); }
  void raise_high_water(std::uint32_t entries) noexcept {
    header().high_water.value.store(entries, std::memory_order_release);  // backed, so scanners may read it
    backed.store(entries, std::memory_order_release);
  }

  void identify() noexcept {  // as this process's
    header().pid.store(::getpid(), std::memory_order_relaxed);
    header().start_time_ticks.store(own_start_time_ticks(), std::memory_order_relaxed);
  }
  void format(const std::string& session, const File* copy_of);
  static std::unique_ptr<File> make(const LeaseFolder& folder, ControlSegment& control, const File* copy_of);
};

void LeaseFile::File::format(const std::string& session, const File* copy_of) {
  const std::string name = segment_name(SegmentKind::leases, session);
  const std::uint32_t n = copy_of == nullptr ? first_lease_step : copy_of->high_water();
  resize_file(fd.get(), lease_file_bytes, name);
  if (!back_range(fd.get(), 0, lease_entries_offset, name) || !back_entries(fd.get(), 0, n, name)) {
    throw_no_room(name, lease_entries_offset + std::uint64_t{n} * 16);
  }
  mapping = SharedMapping(fd.get(), 0, lease_file_bytes, Access::read_write, name);
  auto* header = new (mapping.data()) LeaseFileLayout();
  header->owner = owner;
  header->created_ns = realtime_ns();
  header->pid_namespace = pid_namespace();
  if (copy_of == nullptr) {
    identify();
  } else {
    // Relaxed: the file's name publishes them, and nobody writes the source while a fork is prepared.
    for (std::uint32_t i = 0; i < n; ++i) {
      entries()[i].store(copy_of->entries()[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
      times()[i].store(copy_of->times()[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
  }
  raise_high_water(n);
  write_header(header->header, SegmentKind::leases, session, lease_file_bytes);
}

// With `copy_of`: the hand-over of a fork, holding the same claims and no pid yet.
std::unique_ptr<LeaseFile::File> LeaseFile::File::make(const LeaseFolder& folder, ControlSegment& control, const File* copy_of) {
  for (int attempt = 0; attempt < 32; ++attempt) {
    auto file = std::make_unique<File>();
    file->owner = control.next_owner();
    const std::string temporary = LeaseFolder::temporary_name(file->owner);
    try {
      file->fd = folder.create_locked(temporary);
    } catch (const Error& error) {
      if (error.code != ErrorCode::system || error.errno_value != ENOSPC) throw;
      throw_no_room(segment_name(SegmentKind::leases, control.session()), lease_entries_offset);
    }
    try {
      TQ_PAUSE("lease_file.locked");
      file->format(control.session(), copy_of);
      if (folder.rename(temporary, LeaseFolder::file_name(file->owner))) return file;
    } catch (...) {
      folder.remove(temporary);
      throw;
    }
    // A reaper met the file before it was locked, took it for a dead one's and removed it; or another process has that number,
    // which only a damaged counter gives out twice.
  }
  throw Error(ErrorCode::session_not_found, "the lease folder of session '" + control.session() + "' is being removed");
}

LeaseFile::LeaseFile(const std::string& directory, std::shared_ptr<ControlSegment> control)
    : folder_(directory), control_(std::move(control)), file_(File::make(folder_, *control_, nullptr)) {
  current_.store(file_.get(), std::memory_order_release);
}

std::shared_ptr<LeaseFile> LeaseFile::create(const std::string& directory, std::shared_ptr<ControlSegment> control) {
  const OperationGuard guard;
  return std::shared_ptr<LeaseFile>(new LeaseFile(directory, std::move(control)), GuardedDelete{});
}

LeaseFile::~LeaseFile() {
  if (file_ != nullptr) folder_.remove(LeaseFolder::file_name(file_->owner));
}

LeaseFile::File& LeaseFile::file() {
  // Acquire pairs with the store below: the file's mapping is set up.
  if (File* file = current_.load(std::memory_order_acquire)) return *file;
  const std::lock_guard lock(grow_mutex_);
  switch (claims_.load(std::memory_order_relaxed)) {
    case Claims::own: break;
    case Claims::lost:
      throw Error(ErrorCode::closed, "this process was forked while views were held, and its leases could not be handed over (" +
                                         failure_ + "): attach anew");
    case Claims::over:
      throw Error(ErrorCode::session_not_found, "session '" + control_->session() + "' was over when this process was forked");
  }
  if (file_ == nullptr) {
    file_ = File::make(folder_, *control_, nullptr);
    current_.store(file_.get(), std::memory_order_release);
  }
  return *file_;
}

OwnerId LeaseFile::owner() {
  const OperationGuard guard;
  return file().owner;
}

std::uint32_t LeaseFile::take(BlockRef block, std::int64_t since_ns) {
  File& file = this->file();
  for (;;) {
    const std::uint32_t n = file.high_water();
    if (held_.load(std::memory_order_relaxed) < n) {
      std::atomic<std::uint64_t>* entries = file.entries();
      std::uint32_t entry = hint_.load(std::memory_order_relaxed) % n;
      for (std::uint32_t looked = 0; looked < n; ++looked, entry = entry + 1 == n ? 0 : entry + 1) {
        if (entries[entry].load(std::memory_order_relaxed) != 0) continue;
        std::uint64_t expected = 0;
        // Acquire: what this thread stores into the entry follows what its last user did with it.
        if (entries[entry].compare_exchange_strong(expected, lease_being_taken, std::memory_order_acquire)) {
          file.times()[entry].store(since_ns, std::memory_order_release);
          entries[entry].store(block.word, std::memory_order_release);
          held_.fetch_add(1, std::memory_order_relaxed);
          hint_.store(entry + 1, std::memory_order_relaxed);
          return entry;
        }
      }
    }
    extend(file, n);
  }
}

void LeaseFile::extend(File& file, std::uint32_t entries) {
  const std::lock_guard lock(grow_mutex_);
  if (file.high_water() != entries) return;
  const std::uint32_t wanted = std::min(entries * 2, max_leases);
  if (wanted == entries) throw_lease_file_full(control_->session(), "all entries of the lease file are taken", held());
  const std::string name = segment_name(SegmentKind::leases, control_->session());
  if (!back_entries(file.fd.ours(name), entries, wanted - entries, name)) {
    throw_lease_file_full(control_->session(), "the file system has no room to extend the lease file", held());
  }
  file.raise_high_water(wanted);
}

void LeaseFile::release(std::uint32_t entry) noexcept {
  // Relaxed: the pointer changes only in a child between its threads, and its caller got it from take().
  File* file = current_.load(std::memory_order_relaxed);
  if (file == nullptr) return;  // a child's, whose claims were lost or are over; such a one never makes a file
  // Release: all reading of the block comes before; a retirer that loads this 0 (acquire) may reuse the bytes.
  file->entries()[entry].store(0, std::memory_order_release);
  held_.fetch_sub(1, std::memory_order_relaxed);
  if (entry < hint_.load(std::memory_order_relaxed)) hint_.store(entry, std::memory_order_relaxed);
}

void LeaseFile::check_descriptor() const {
  if (const File* mine = current_.load(std::memory_order_acquire); mine != nullptr) mine->fd.ours("lease file of this process");
}

std::uint32_t LeaseFile::held() const noexcept { return held_.load(std::memory_order_relaxed); }

bool LeaseFile::claims_void() const noexcept { return claims_.load(std::memory_order_relaxed) == Claims::lost; }

void LeaseFile::before_fork() noexcept {
  claims_of_child_ = claims_.load(std::memory_order_relaxed);
  if (file_ == nullptr || held() == 0) return;
  try {
    TQ_PAUSE("fork.before_handover");
    handover_ = File::make(folder_, *control_, file_.get());
    control_->handovers().fetch_add(1, std::memory_order_seq_cst);  // before the parent may release: lease_directory.hpp
    TQ_PAUSE("fork.handed_over");
  } catch (const Error& error) {
    handover_.reset();
    claims_of_child_ = error.code == ErrorCode::session_not_found || control_->ended() ? Claims::over : Claims::lost;
    failure_ = error.what();
  } catch (const std::exception& error) {
    handover_.reset();
    claims_of_child_ = Claims::lost;
    failure_ = error.what();
  }
}

void LeaseFile::after_fork_in_parent() noexcept {
  handover_.reset();  // closes our descriptor of it: the child's keeps the lock
}

void LeaseFile::after_fork_in_child() noexcept {
  TQ_PAUSE_NOTHROW("fork.in_child");
  claims_.store(claims_of_child_, std::memory_order_relaxed);
  if (handover_ != nullptr) {
    file_ = std::move(handover_);  // closes our descriptor of the parent's file: its lock is the parent's alone again
    file_->identify();
  } else {
    file_.reset();
    held_.store(0, std::memory_order_relaxed);
    hint_.store(0, std::memory_order_relaxed);
  }
  current_.store(file_.get(), std::memory_order_release);
}

}  // namespace tq
