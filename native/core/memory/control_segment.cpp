#include "core/memory/control_segment.hpp"

#include <new>

#include "core/error.hpp"
#include "core/memory/robust_lock.hpp"
#include "core/memory/wake.hpp"

namespace tq {

using layout::ControlLayout;
using layout::SegmentKind;

namespace {

constexpr std::uint64_t control_bytes = (sizeof(ControlLayout) + 4095) / 4096 * 4096;

}  // namespace

void ControlSegment::format(int fd, const std::string& session, std::uint64_t payload_bytes, std::uint64_t step_bytes) {
  const std::string name = segment_name(SegmentKind::control, session);
  resize_file(fd, control_bytes, name);
  if (!back_range(fd, 0, control_bytes, name)) {
    throw Error(ErrorCode::storage_full, "no room for the " + name + " (" + std::to_string(control_bytes) + " bytes)");
  }
  const SharedMapping mapping(fd, 0, control_bytes, Access::read_write, name);
  auto* control = new (mapping.data()) ControlLayout();
  control->payload_bytes = payload_bytes;
  control->step_bytes = step_bytes;
  control->pid_namespace = pid_namespace();
  robust_lock::format(control->write_gate);
  robust_lock::format(control->growth_lock);
  robust_lock::format(control->spill_lock);
  for (auto& lock : control->task_locks) robust_lock::format(lock);
  write_header(control->header, SegmentKind::control, session, control_bytes);
}

ControlSegment::ControlSegment(int fd, const std::string& session) : session_(session) {
  const std::string name = segment_name(SegmentKind::control, session);
  check_header(fd, SegmentKind::control, session, control_bytes);
  mapping_ = SharedMapping(fd, 0, control_bytes, Access::read_write, name);
  counters_ = Counters(at().stripes, at().methods);
  // Acquire: everything that format wrote before the magic.
  if (at().header.magic.load(std::memory_order_acquire) != layout::magic) {
    throw Error(ErrorCode::corrupt, "the " + name + " was never finished by its creator");
  }
  const std::uint64_t here = pid_namespace();
  if (here != 0 && at().pid_namespace != 0 && here != at().pid_namespace) {
    throw Error(ErrorCode::layout_mismatch,
                "session '" + session + "' was made in pid namespace " + std::to_string(at().pid_namespace) +
                    ", this process is in " + std::to_string(here) +
                    ": its locks know processes by id. Run both in one pid namespace (containers: --pid=container:... or "
                    "hostPID)");
  }
}

OwnerId ControlSegment::next_owner() noexcept {
  return at().next_owner.value.fetch_add(1, std::memory_order_relaxed) + 1;  // only uniqueness matters
}

void ControlSegment::end_session() noexcept {
  at().ended.store(1, std::memory_order_release);  // before the bumps: who is woken sees it
  bump_word(at().session_word.value);
  for (auto& word : at().partition_words) bump_word(word);
}

bool ControlSegment::ended() const noexcept { return at().ended.load(std::memory_order_acquire) != 0; }

std::atomic<std::uint32_t>& ControlSegment::partition_word(PartitionId id) noexcept {
  return at().partition_words[id % layout::partition_word_count];
}

layout::RobustLock& ControlSegment::task_lock(PartitionId id, const std::string& task) noexcept {
  const std::uint64_t hash = layout::fnv1a(task, layout::fnv1a(std::to_string(id)));
  return at().task_locks[hash % layout::task_lock_count];
}

}  // namespace tq
