// Everything that lies in shared memory, and nothing else. Offsets, never pointers; native byte order (a segment never
// leaves its node). layout_asserts.cpp freezes sizes and offsets; change a struct and `layout_version` together.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tq::layout {

inline constexpr std::uint32_t layout_version = 7;
inline constexpr std::uint64_t magic = 0x314d48532d515454;  // "TTQ-SHM1", little-endian

enum class SegmentKind : std::uint32_t { control = 1, table = 2, payload = 3, leases = 4, spill = 5 };

// The first 64 bytes of every segment and lease file.
//   0        8        12       16           24            32           40          64
//   | magic  | version | kind  | fingerprint | session hash | size bytes | zero      |
// `magic` is stored last, with release: who reads it (acquire) reads a finished header. All else is constant after that.
struct SegmentHeader {
  std::atomic<std::uint64_t> magic;
  std::uint32_t version;
  SegmentKind kind;
  std::uint64_t fingerprint;   // of the layout as this build sees it: see `fingerprint()`
  std::uint64_t session_hash;  // FNV-1a of the session's name
  std::uint64_t size_bytes;    // of the whole file; fstat must agree before anything else is touched
  std::uint64_t zero[3];
};

// A word that one party writes often has its cache line to itself.
struct alignas(64) Line64 {
  std::atomic<std::uint64_t> value;
};
struct alignas(64) Line32 {
  std::atomic<std::uint32_t> value;
};

// A robust process-shared mutex and, for messages only, who holds it.
struct alignas(64) RobustLock {
  pthread_mutex_t mutex;
  std::atomic<std::int32_t> holder_pid;  // 0: nobody. Relaxed: it is printed, never decided upon
};

// Counters of the statistics: see counters.hpp for who adds to them and why all of it is relaxed.
// One latency: the sum and how often each class of times occurred, class by class; the count is the sum of the classes.
inline constexpr std::size_t latency_class_count = 55;
struct LatencyLayout {
  std::atomic<std::uint64_t> sum_ns;
  std::atomic<std::uint64_t> counts[latency_class_count];
};
// One stripe, a page: the processes whose pid falls on it add here.
//   0 | latencies [8], 448 bytes each | 3584 | counters [64], 8 bytes each | 4096
inline constexpr std::size_t latency_count = 8;
inline constexpr std::size_t counter_count = 64;
struct alignas(4096) CounterStripe {
  LatencyLayout latencies[latency_count];
  std::atomic<std::uint64_t> counters[counter_count];
};
inline constexpr std::size_t stripe_count = 64;
// What was measured of one method of a worker, by name; an entry belongs to its name for the life of the session.
//   0 | state | 4 | bytes of the name | 8 | name [120] | 128 | figures [16], 8 bytes each | 256
// state: 0 free -> 1 (compare-and-swap: its taker writes the name) -> 2 (release: the name stands)
inline constexpr std::size_t method_name_bytes = 120;
inline constexpr std::size_t method_figure_count = 16;
struct alignas(64) MethodLayout {
  std::atomic<std::uint32_t> state;
  std::uint32_t name_nbytes;
  char name[method_name_bytes];
  std::atomic<std::uint64_t> figures[method_figure_count];
};
inline constexpr std::size_t method_count = 256;

inline constexpr std::size_t task_lock_count = 64;
inline constexpr std::size_t partition_word_count = 1024;  // by id modulo; a collision is a spurious wake, never a lost one

// Control segment.
//      0 | SegmentHeader
//     64 | payload bytes, step bytes, pid namespace: constant | ended (0, then 1 for ever)
//    128 | next owner id | 192 | lease hand-overs | 256 | session word
//    320 | write gate    | 384 | task locks [64] | 4480 | partition words [1024], 4 bytes each
//   8576 | growth lock   | 8640 | spill lock | 8704 | limit epoch
//   8768 | oldest read of the index and since when: see oldest_read.hpp | 8832 | zero
//  12288 | counter stripes [64], a page each | 274432 | methods [256], 256 bytes each | 339968 | end
// The partition words are packed: they are bumped once a commit, which costs far more than a shared line.
struct ControlLayout {
  SegmentHeader header;
  alignas(64) std::uint64_t payload_bytes;
  std::uint64_t step_bytes;
  std::uint64_t pid_namespace;  // inode of /proc/self/ns/pid of the creator; 0: unknown
  std::atomic<std::uint32_t> ended;
  Line64 next_owner;     // the last owner id handed out; ids start at 1
  Line64 handovers;      // lease files written by fork() for a child so far: see lease_directory.hpp
  Line32 session_word;   // futex: bumped by every commit
  RobustLock write_gate;
  RobustLock task_locks[task_lock_count];
  std::atomic<std::uint32_t> partition_words[partition_word_count];  // futexes
  RobustLock growth_lock;
  RobustLock spill_lock;
  Line32 limit_epoch;    // how often limits were set; only a hint, the index decides
  Line64 oldest_read;
  CounterStripe stripes[stripe_count];
  MethodLayout methods[method_count];
};

// Block table: two words a slot.
//     0 | SegmentHeader | 64 | backed slots | 128 | words, 8 bytes each, sparse: only `backed slots` of them may be touched
//   33554560 | last uses, 4 bytes each, sparse alike
//   word = generation << 24 | state
struct TableLayout {
  SegmentHeader header;
  Line64 backed_slots;  // only grows; stored after posix_fallocate succeeded
};
inline constexpr std::uint32_t max_slots = 1u << 22;
inline constexpr std::uint32_t table_step_slots = 8192;  // 64 KiB of words, 32 KiB of last uses
inline constexpr std::uint64_t table_words_offset = 128;
inline constexpr std::uint64_t table_uses_offset = table_words_offset + std::uint64_t{max_slots} * 8;

// Payload: header area, then the bytes that spans address (span offset 0 is file offset `payload_data_offset`).
//     0 | SegmentHeader | 64 | backed bytes | 128 | touched bytes | 192 | punched bytes | 256 | collapsed bytes | 320 | huge bytes
//   384 | spill file: backed bytes | 448 | punched bytes | 512 | id | 576 | headroom bytes | 640 | zero | 65536 | span offset 0 ...
//   | headroom
// The area is a multiple of every page size in use (4, 16, 64 KiB), so that spans keep their alignment in the file.
struct PayloadLayout {
  SegmentHeader header;
  Line64 backed_bytes;   // [0, backed) has been fallocated; only grows
  Line64 touched_bytes;  // [0, touched) has been written or populated: warm. A hint: trim lowers it
  Line64 punched_bytes;  // ever punched; while 0, nothing below backed is a hole
  Line64 collapsed_bytes;  // file bytes [0, collapsed) were made huge pages, or it was tried. A hint: trim lowers it
  Line64 huge_bytes;       // of these, how many are; for the statistics
  // Of the spill file, here because here is memory: see spill_file.hpp.
  Line64 spill_backed_bytes;
  Line64 spill_punched_bytes;
  Line64 spill_id;  // of the file that belongs to the session; 0: it has none. Constant
  Line64 headroom_bytes;  // at the end of the file, for compaction (index/space.hpp). Constant
};

// Spill file: a header and an id, then the bytes that spans from `spill_base` on address, from `payload_data_offset` on.
//     0 | SegmentHeader | 64 | id | 72 | zero | 65536 | span offset spill_base ...
struct SpillLayout {
  SegmentHeader header;
  std::uint64_t id;
};
inline constexpr std::uint64_t payload_data_offset = 65536;

// Lease file: the claims of one process, written by it alone.
//     0 | SegmentHeader | 64 | owner, pid, start time, created, pid namespace | 128 | high water | 192 | zero
//  4096 | entries [2^20], 8 bytes each: a block ref, 0 for a free entry, `lease_being_taken` for one that is being written
//  8392704 | times [2^20], 8 bytes each: when the entry of that number was taken, CLOCK_MONOTONIC ns; what a free one says is old
// Both arrays are sparse and backed in steps; only [0, high water) of them may be read.
struct LeaseFileLayout {
  SegmentHeader header;
  alignas(64) std::uint64_t owner;
  std::atomic<std::int32_t> pid;                // 0: written for a child that has not taken it over yet
  std::atomic<std::uint64_t> start_time_ticks;  // field 22 of /proc/<pid>/stat: with the pid, names the process to people
  std::int64_t created_ns;                      // CLOCK_REALTIME
  std::uint64_t pid_namespace;
  Line32 high_water;                            // entries that were ever used, rounded up; only grows
};
inline constexpr std::uint64_t lease_entries_offset = 4096;
inline constexpr std::uint32_t max_leases = 1u << 20;
inline constexpr std::uint64_t lease_times_offset = lease_entries_offset + std::uint64_t{max_leases} * 8;
inline constexpr std::uint64_t lease_file_bytes = lease_times_offset + std::uint64_t{max_leases} * 8;
inline constexpr std::uint64_t lease_being_taken = 1;  // generations begin at 1: a ref below 2^24 is no block's
inline constexpr std::uint32_t first_lease_step = 512;  // one page of entries; then doubling

constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) {
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Differs between builds that must not share a session: other struct layout, other mutex ABI, other byte order.
std::uint64_t fingerprint() noexcept;

}  // namespace tq::layout
