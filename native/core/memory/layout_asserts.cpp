// Freezes what lies in shared memory. A failure here means: raise `layout_version`.
#include "core/memory/layout.hpp"

#include <type_traits>

namespace tq::layout {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "a lock inside an atomic would live in one process");
static_assert(sizeof(std::atomic<std::uint64_t>) == 8 && sizeof(std::atomic<std::uint32_t>) == 4);

static_assert(sizeof(SegmentHeader) == 64 && std::is_standard_layout_v<SegmentHeader>);
static_assert(offsetof(SegmentHeader, magic) == 0);
static_assert(offsetof(SegmentHeader, version) == 8);
static_assert(offsetof(SegmentHeader, kind) == 12);
static_assert(offsetof(SegmentHeader, fingerprint) == 16);
static_assert(offsetof(SegmentHeader, session_hash) == 24);
static_assert(offsetof(SegmentHeader, size_bytes) == 32);
static_assert(offsetof(SegmentHeader, zero) == 40);

static_assert(sizeof(Line64) == 64 && sizeof(Line32) == 64);
static_assert(sizeof(RobustLock) == 64 && alignof(RobustLock) == 64);

static_assert(std::is_standard_layout_v<LatencyLayout> && sizeof(LatencyLayout) == 448);
static_assert(std::is_standard_layout_v<CounterStripe> && sizeof(CounterStripe) == 4096);
static_assert(offsetof(CounterStripe, counters) == 3584);
static_assert(std::is_standard_layout_v<MethodLayout> && sizeof(MethodLayout) == 256);
static_assert(offsetof(MethodLayout, name_nbytes) == 4);
static_assert(offsetof(MethodLayout, name) == 8);
static_assert(offsetof(MethodLayout, figures) == 128);

static_assert(std::is_standard_layout_v<ControlLayout> && sizeof(ControlLayout) == 339968);
static_assert(offsetof(ControlLayout, payload_bytes) == 64);
static_assert(offsetof(ControlLayout, step_bytes) == 72);
static_assert(offsetof(ControlLayout, pid_namespace) == 80);
static_assert(offsetof(ControlLayout, ended) == 88);
static_assert(offsetof(ControlLayout, next_owner) == 128);
static_assert(offsetof(ControlLayout, handovers) == 192);
static_assert(offsetof(ControlLayout, session_word) == 256);
static_assert(offsetof(ControlLayout, write_gate) == 320);
static_assert(offsetof(ControlLayout, task_locks) == 384);
static_assert(offsetof(ControlLayout, partition_words) == 4480);
static_assert(offsetof(ControlLayout, growth_lock) == 8576);
static_assert(offsetof(ControlLayout, spill_lock) == 8640);
static_assert(offsetof(ControlLayout, limit_epoch) == 8704);
static_assert(offsetof(ControlLayout, oldest_read) == 8768);
static_assert(offsetof(ControlLayout, stripes) == 12288);
static_assert(offsetof(ControlLayout, methods) == 274432);

static_assert(std::is_standard_layout_v<TableLayout> && sizeof(TableLayout) == 128);
static_assert(offsetof(TableLayout, backed_slots) == 64);
static_assert(sizeof(TableLayout) == table_words_offset && table_uses_offset == 33554560 && table_uses_offset % 64 == 0);

static_assert(std::is_standard_layout_v<PayloadLayout> && sizeof(PayloadLayout) == 640);
static_assert(offsetof(PayloadLayout, backed_bytes) == 64);
static_assert(offsetof(PayloadLayout, touched_bytes) == 128);
static_assert(offsetof(PayloadLayout, punched_bytes) == 192);
static_assert(offsetof(PayloadLayout, collapsed_bytes) == 256);
static_assert(offsetof(PayloadLayout, huge_bytes) == 320);
static_assert(offsetof(PayloadLayout, spill_backed_bytes) == 384);
static_assert(offsetof(PayloadLayout, spill_punched_bytes) == 448);
static_assert(offsetof(PayloadLayout, spill_id) == 512);
static_assert(offsetof(PayloadLayout, headroom_bytes) == 576);
static_assert(std::is_standard_layout_v<SpillLayout> && sizeof(SpillLayout) == 72 && offsetof(SpillLayout, id) == 64);
static_assert(payload_data_offset % 65536 == 0 && payload_data_offset >= sizeof(PayloadLayout));

static_assert(std::is_standard_layout_v<LeaseFileLayout> && sizeof(LeaseFileLayout) == 192);
static_assert(offsetof(LeaseFileLayout, owner) == 64);
static_assert(offsetof(LeaseFileLayout, pid) == 72);
static_assert(offsetof(LeaseFileLayout, start_time_ticks) == 80);
static_assert(offsetof(LeaseFileLayout, created_ns) == 88);
static_assert(offsetof(LeaseFileLayout, pid_namespace) == 96);
static_assert(offsetof(LeaseFileLayout, high_water) == 128);
static_assert(lease_entries_offset >= sizeof(LeaseFileLayout) && lease_entries_offset % 64 == 0);
static_assert(lease_times_offset == 8392704 && lease_file_bytes == 16781312);
static_assert(max_leases % first_lease_step == 0);

}  // namespace tq::layout
