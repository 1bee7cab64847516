#include "core/memory/layout.hpp"

namespace tq::layout {

namespace {

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  for (int i = 0; i < 8; ++i, value >>= 8) hash = (hash ^ (value & 0xff)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::uint64_t fingerprint() noexcept {
  std::uint64_t hash = fnv1a("transferqueue-shm");
#if defined(__GLIBC__)
  hash = fnv1a("glibc", hash);  // whose pthread_mutex_t it is
#endif
  const std::uint16_t one = 1;
  const std::uint64_t facts[] = {
      layout_version,
      *reinterpret_cast<const unsigned char*>(&one),  // byte order
      sizeof(pthread_mutex_t),
      sizeof(ControlLayout),
      offsetof(ControlLayout, write_gate),
      offsetof(ControlLayout, partition_words),
      offsetof(ControlLayout, stripes),
      offsetof(ControlLayout, methods),
      sizeof(TableLayout),
      max_slots,
      sizeof(PayloadLayout),
      sizeof(SpillLayout),
      table_uses_offset,
      payload_data_offset,
      sizeof(LeaseFileLayout),
      lease_entries_offset,
      lease_times_offset,
      max_leases,
  };
  for (std::uint64_t fact : facts) hash = mix(hash, fact);
  return hash;
}

}  // namespace tq::layout
