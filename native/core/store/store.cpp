#include "core/store/store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/memory/fork_gate.hpp"
#include "core/memory/spill_file.hpp"
#include "core/memory/wake.hpp"
#include "core/patience.hpp"
#include "core/store/give_back.hpp"
#include "core/store/room.hpp"

namespace tq {

namespace {

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) throw Error::system("cannot create " + path, errno);
}

}  // namespace

void Store::format(const SessionFiles& files, const Sizes& sizes) {
  if (sizes.payload_bytes == 0 || sizes.step_bytes == 0 || sizes.index_bytes == 0) {
    throw Error(ErrorCode::invalid, "format: payload_bytes, index_bytes and step_bytes must be positive");
  }
  if ((sizes.spill_bytes > 0) != (files.spill_fd >= 0)) throw Error(ErrorCode::invalid, "format: a spill file needs a size, and only it");
  make_directory(files.directory + "/index");
  make_directory(files.directory + "/leases");
  ControlSegment::format(files.control_fd, files.session, sizes.payload_bytes, sizes.step_bytes);
  BlockTable::format(files.table_fd, files.session);
  // A sixteenth of the payload, at most 64 MiB: what one step of compaction copies. Backed when first needed.
  const std::uint64_t headroom = std::clamp<std::uint64_t>(sizes.payload_bytes / 16 / page_bytes() * page_bytes(), page_bytes(), 64u << 20);
  const std::uint64_t behind = (sizes.payload_bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  PayloadSegment::format(files.payload_fd, files.session, sizes.payload_bytes, headroom);
  if (sizes.spill_bytes > 0) SpillFile::format(files.spill_fd, files.payload_fd, files.session, sizes.spill_bytes);
  Index::create(files.directory + "/index", sizes.index_bytes, sizes.payload_bytes, layout::max_slots, sizes.spill_bytes,
                {behind, headroom}, sizes.first_row);
}

Store::Store(const SessionFiles& files) {
  const OperationGuard guard;  // a fork meanwhile would copy an environment that is half open
  attachment_ = std::make_shared<Attachment>(files);
}

// Pending blocks share the attachment and may outlive this object; the index they must not.
Store::~Store() { close(); }

void Store::close() {
  if (attachment_->closed()) return;
  try {
    // A process that ends must not be kept by one that is stopped: what it would give back is reaped.
    const Patience patience(5.0);
    const Call call(*attachment_, Needs::attachment);
    drain_give_back(*attachment_, call.index());
    give_stock_back(*attachment_, call.index());
    // The lease file may outlive this call, since views keep it.
    if (attachment_->claimed.load(std::memory_order_relaxed)) {
      wake_partitions(*attachment_->control, call.index().drop_claims(attachment_->leases->owner()));
    }
  } catch (const Error&) {
    // The write gate is stuck, the index broken or another thread closed first. What is queued stays pending under our lease
    // file and goes to whoever reaps it; closing must not fail for it.
  }
  attachment_->close();
}

bool Store::closed() const { return attachment_->closed(); }

OwnerId Store::owner() const {
  const Call call(*attachment_, Needs::attachment);
  return attachment_->leases->owner();
}

void Store::end_session() {
  const Call call(*attachment_, Needs::mappings);
  attachment_->control->end_session();
}

bool Store::ended() const { return attachment_->control->ended(); }

namespace {

std::atomic<std::uint32_t>& word_of(ControlSegment& control, const std::optional<std::string>& partition) noexcept {
  return partition ? partition_word(control, *partition) : control.session_word();
}

}  // namespace

std::uint32_t Store::wake_word(const std::optional<std::string>& partition) {
  const Call call(*attachment_);
  return read_word(word_of(*attachment_->control, partition));
}

bool Store::wait_word(const std::optional<std::string>& partition, std::uint32_t seen, double timeout_s) {
  // Asleep outside the call: a fork or close() need not wait for a sleeper, and the segment is kept by the attachment.
  { const Call call(*attachment_); }
  return tq::wait_word(word_of(*attachment_->control, partition), seen, timeout_s);
}

bool Store::wait_change(const std::string& partition, std::uint32_t seen, std::uint64_t version, double timeout_s,
                        const Interrupt& interrupt) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  // A wake-up that finds nothing costs about 25 us of a core, most of it in the kernel: 64 sleepers that look ten times a
  // second use 1.7 % (measured). Who just began to wait looks often, who waits for long does not.
  for (double slice_s = wait_slice_s;; slice_s = std::min(2 * slice_s, longest_slice_s)) {
    const double left_s = timeout_s - std::chrono::duration<double>(Clock::now() - start).count();
    if (wait_word(partition, seen, std::min(left_s, slice_s))) return true;
    if (partition_version(partition) != version) return true;
    if (interrupt) interrupt();
    if (left_s <= slice_s) return false;
  }
}

void Store::wake(const std::optional<std::string>& partition) {
  const Call call(*attachment_);
  bump_word(word_of(*attachment_->control, partition));
}

std::unique_ptr<TaskLock> Store::lock_task(const std::string& partition, const std::string& task, double timeout_s,
                                           robust_lock::Interrupted interrupted) {
  { const Call call(*attachment_); }
  // The control segment hashes an id and a task; the partition's own id would cost a look-up and say no more.
  const auto id = static_cast<PartitionId>(layout::fnv1a(partition));
  return std::make_unique<TaskLock>(attachment_->control, id, task, timeout_s, interrupted);
}

}  // namespace tq
