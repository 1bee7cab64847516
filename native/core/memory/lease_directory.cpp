#include "core/memory/lease_directory.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/memory/lease_clock.hpp"
#include "core/pause.hpp"

namespace tq {

using layout::lease_entries_offset;
using layout::lease_file_bytes;
using layout::lease_times_offset;
using layout::LeaseFileLayout;
using layout::SegmentKind;

namespace {

// `then_ns` is whatever stands in a shared file: the difference of two integers could overflow.
double seconds_since(std::int64_t then_ns) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  return (static_cast<double>(now_ns) - static_cast<double>(then_ns)) * 1e-9;
}

}  // namespace

struct LeaseDirectory::Entry {
  SharedMapping mapping;

  // Of a dead process whose file is damaged there is nothing to read, and nothing that anybody needs.
  const LeaseFileLayout& header() const noexcept {
    static const LeaseFileLayout none{};
    return mapping.data() == nullptr ? none : *reinterpret_cast<const LeaseFileLayout*>(mapping.data());
  }

  // Calls use(ref) for every claim. Acquire on the mark: entries below it are backed. Acquire on an entry: a 0 that we act
  // upon follows all reading of who released it.
  template <typename Use>
  void each_claim(Use use) const {
    if (mapping.data() == nullptr) return;
    const auto* entries = reinterpret_cast<const std::atomic<std::uint64_t>*>(mapping.data() + lease_entries_offset);
    const std::uint32_t n = std::min(header().high_water.value.load(std::memory_order_acquire), layout::max_leases);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (const std::uint64_t word = entries[i].load(std::memory_order_acquire); is_block(word)) use(BlockRef{word});
    }
  }

  // The same with how long ago it was taken. The file is another process's: a time that is not in the past counts as now.
  std::vector<HeldLease> held() const {
    if (mapping.data() == nullptr) return {};
    const auto* entries = reinterpret_cast<const std::atomic<std::uint64_t>*>(mapping.data() + lease_entries_offset);
    const auto* times = reinterpret_cast<const std::atomic<std::int64_t>*>(mapping.data() + lease_times_offset);
    const std::uint32_t n = std::min(header().high_water.value.load(std::memory_order_acquire), layout::max_leases);
    const std::int64_t now_ns = lease_clock_ns();
    std::vector<HeldLease> found;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint64_t word = entries[i].load(std::memory_order_acquire);
      if (!is_block(word)) continue;
      const std::int64_t since_ns = times[i].load(std::memory_order_acquire);
      // Released and taken anew in between: the time may be the new claim's, and of a claim that comes or goes during a look
      // either answer is right.
      if (entries[i].load(std::memory_order_acquire) != word) continue;
      const std::int64_t age_ns = since_ns <= 0 || since_ns > now_ns ? 0 : now_ns - since_ns;
      found.push_back({BlockRef{word}, static_cast<double>(age_ns) * 1e-9});
    }
    return found;
  }

 private:
  static bool is_block(std::uint64_t word) noexcept { return BlockRef{word}.generation() != 0; }  // else free, or being taken
};

LeaseDirectory::LeaseDirectory(const std::string& directory, std::shared_ptr<ControlSegment> control)
    : folder_(directory), control_(std::move(control)) {}

LeaseDirectory::~LeaseDirectory() = default;

// Maps new files and forgets vanished ones. Under mutex_.
void LeaseDirectory::refresh() {
  const std::vector<OwnerId> owners = folder_.list().owners;
  std::erase_if(entries_, [&owners](const auto& item) { return !std::binary_search(owners.begin(), owners.end(), item.first); });
  const std::string name = segment_name(SegmentKind::leases, control_->session());
  for (const OwnerId owner : owners) {
    if (entries_.contains(owner)) continue;
    const FileDescriptor fd = folder_.open(LeaseFolder::file_name(owner));
    if (fd.get() < 0) continue;  // its process left since the listing
    auto entry = std::make_unique<Entry>();
    try {
      check_header(fd.get(), SegmentKind::leases, control_->session(), lease_file_bytes);
    } catch (const Error&) {
      if (!is_dead(owner)) throw;  // claims that nobody can read: nothing may be freed
      entries_.emplace(owner, std::move(entry));
      continue;
    }
    entry->mapping = SharedMapping(fd.get(), 0, lease_file_bytes, Access::read, name);
    entries_.emplace(owner, std::move(entry));
  }
}

std::vector<BlockRef> LeaseDirectory::unleased(std::span<const BlockRef> blocks) {
  if (blocks.empty()) return {};
  const OperationGuard guard;
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> asked;
  asked.reserve(blocks.size());
  for (const BlockRef block : blocks) asked.push_back(block.word);
  std::sort(asked.begin(), asked.end());

  for (int attempt = 0; attempt < 64; ++attempt) {
    const std::uint64_t handovers = control_->handovers().load(std::memory_order_seq_cst);
    refresh();
    TQ_PAUSE("lease_directory.listed");
    std::vector<bool> leased(asked.size(), false);
    for (const auto& [owner, entry] : entries_) {
      std::vector<std::size_t> hits;
      entry->each_claim([&](BlockRef claimed) {
        const auto at = std::lower_bound(asked.begin(), asked.end(), claimed.word);
        if (at != asked.end() && *at == claimed.word) hits.push_back(static_cast<std::size_t>(at - asked.begin()));
      });
      // Asked last and only where it matters: a claim of the dead protects nobody.
      if (hits.empty() || is_dead(owner)) continue;
      for (const std::size_t hit : hits) leased[hit] = true;
    }
    // seq_cst, after every entry was read: a claim that moved to a child's new file shows here.
    if (control_->handovers().load(std::memory_order_seq_cst) != handovers) continue;
    std::vector<BlockRef> free;
    for (const BlockRef block : blocks) {
      const auto at = std::lower_bound(asked.begin(), asked.end(), block.word);
      if (!leased[static_cast<std::size_t>(at - asked.begin())]) free.push_back(block);
    }
    return free;
  }
  return {};
}

std::vector<ClientInfo> LeaseDirectory::clients() {
  const OperationGuard guard;
  const std::lock_guard lock(mutex_);
  refresh();
  static const auto ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::vector<ClientInfo> clients;
  clients.reserve(entries_.size());
  for (const auto& [owner, entry] : entries_) {
    ClientInfo client;
    client.owner = owner;
    client.pid = entry->header().pid.load(std::memory_order_relaxed);
    client.start_time_s = static_cast<double>(entry->header().start_time_ticks.load(std::memory_order_relaxed)) / ticks_per_s;
    client.age_s = seconds_since(entry->header().created_ns);
    client.alive = !is_dead(owner);
    client.leased = entry->held();
    clients.push_back(std::move(client));
  }
  return clients;
}

std::vector<ClientInfo> LeaseDirectory::dead() {
  const OperationGuard guard;
  for (const std::string& unfinished : folder_.list().unfinished) {
    // If its maker is between creating and locking it, its rename fails and it tries again (lease_file.hpp).
    if (folder_.is_dead(unfinished)) folder_.remove(unfinished);
  }
  std::vector<ClientInfo> dead = clients();
  std::erase_if(dead, [](const ClientInfo& client) { return client.alive; });
  return dead;
}

void LeaseDirectory::remove(OwnerId owner) {
  const OperationGuard guard;
  if (is_dead(owner)) folder_.remove(LeaseFolder::file_name(owner));
}

}  // namespace tq
