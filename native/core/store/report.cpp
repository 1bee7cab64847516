// Reclaiming, reaping, populating and what the statistics say.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/gather_buffer.hpp"
#include "core/memory/oldest_read.hpp"
#include "core/patience.hpp"
#include "core/store/give_back.hpp"
#include "core/store/room.hpp"
#include "core/store/spill.hpp"
#include "core/store/store.hpp"

namespace tq {

namespace {

// What it waits for a lock: it is done again and again, and who ends the service waits for it.
constexpr double housekeeping_s = 5.0;

// The distinct blocks of `clients`, and where they lie.
std::map<std::uint64_t, Span> leased_spans(Index& index, const std::vector<ClientInfo>& clients) {
  std::map<std::uint64_t, Span> spans;
  for (const ClientInfo& client : clients) {
    for (const HeldLease& lease : client.leased) spans.emplace(lease.block.word, Span{});
  }
  std::vector<BlockRef> blocks;
  for (const auto& [word, span] : spans) blocks.push_back(BlockRef{word});
  const std::vector<Span> found = index.block_spans(blocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) spans[blocks[i].word] = found[i];
  return spans;
}

std::uint64_t nbytes_of(const std::vector<HeldLease>& leases, const std::map<std::uint64_t, Span>& spans) {
  std::set<std::uint64_t> blocks;
  for (const HeldLease& lease : leases) blocks.insert(lease.block.word);
  std::uint64_t nbytes = 0;
  for (const std::uint64_t block : blocks) nbytes += spans.at(block).nbytes;
  return nbytes;
}

// One report a client and block, the oldest claim's age in it.
std::vector<LeaseReport> by_block(const std::vector<ClientInfo>& clients) {
  std::vector<LeaseReport> reports;
  for (const ClientInfo& client : clients) {
    std::map<std::uint64_t, LeaseReport> of_client;
    for (const HeldLease& lease : client.leased) {
      LeaseReport& report = of_client[lease.block.word];
      report.block = lease.block;
      report.owner = client.owner;
      report.pid = client.pid;
      report.start_time_s = client.start_time_s;
      report.alive = client.alive;
      report.claims += 1;
      report.age_s = std::max(report.age_s, lease.age_s);
    }
    for (const auto& [word, report] : of_client) reports.push_back(report);
  }
  return reports;
}

struct OldRead {
  std::uint64_t pid = 0;
  std::uint64_t age_s = 0;
  std::uint64_t commits = 0;
};

OldRead look_at_readers(Attachment& attachment, Index& index) {
  const std::optional<Index::OldRead> reader = index.oldest_reader();
  if (!reader) {
    note_no_old_read(attachment.control->oldest_read());
    return {};
  }
  const std::uint64_t age_s = note_oldest_read(attachment.control->oldest_read(), reader->pid, reader->txn);
  return {static_cast<std::uint64_t>(reader->pid), age_s, reader->commits};
}

}  // namespace

std::uint64_t Store::reclaim() {
  const Patience patience(housekeeping_s);
  const Call call(*attachment_);
  const std::uint64_t freed = reclaim_all(*attachment_, call.index());
  call.index().check_readers();
  look_at_readers(*attachment_, call.index());
  return freed;
}

std::vector<std::pair<OwnerId, std::int64_t>> Store::reap() {
  const Patience patience(housekeeping_s);
  const Call call(*attachment_);
  drain_give_back(*attachment_, call.index());
  return reap_dead(*attachment_, call.index());
}

std::uint64_t Store::populate(std::uint64_t nbytes) {
  const Patience patience(housekeeping_s);
  const Call call(*attachment_);
  return populate_ahead(*attachment_, call.index(), nbytes);
}

std::uint64_t Store::make_huge(std::uint64_t nbytes) {
  const Call call(*attachment_);
  return attachment_->payload->make_huge(nbytes);
}

std::uint64_t Store::trim() {
  const Patience patience(housekeeping_s);
  const Call call(*attachment_);
  drain_give_back(*attachment_, call.index());
  trim_gather_pool();  // this process's own, no part of the session
  return trim_free(*attachment_, call.index());
}

std::uint64_t Store::spill(std::uint64_t nbytes, bool contiguous) {
  const Call call(*attachment_);
  drain_give_back(*attachment_, call.index());
  return spill_cold(*attachment_, call.index(), nbytes, contiguous);
}

std::vector<ClientReport> Store::clients() {
  const Call call(*attachment_);
  drain_if_free(*attachment_, call.index());
  const std::vector<ClientInfo> clients = attachment_->lease_directory.clients();
  const std::map<std::uint64_t, Span> spans = leased_spans(call.index(), clients);
  std::map<OwnerId, std::uint64_t> pending;
  for (const auto& [owner, nbytes] : call.index().pending_by_owner()) pending[owner] = nbytes;
  std::vector<ClientReport> reports;
  for (const ClientInfo& client : clients) {
    reports.push_back({.owner = client.owner,
                       .pid = client.pid,
                       .start_time_s = client.start_time_s,
                       .alive = client.alive,
                       .leases = client.leased.size(),
                       .leased_bytes = nbytes_of(client.leased, spans),
                       .pending_bytes = pending[client.owner],
                       .age_s = client.age_s});
  }
  return reports;
}

std::vector<LeaseReport> Store::leases() {
  const Call call(*attachment_);
  drain_if_free(*attachment_, call.index());
  std::vector<LeaseReport> reports = by_block(attachment_->lease_directory.clients());
  std::vector<BlockRef> blocks;
  blocks.reserve(reports.size());
  for (const LeaseReport& report : reports) blocks.push_back(report.block);
  std::vector<Index::BlockFacts> facts = call.index().describe_blocks(blocks);
  for (std::size_t i = 0; i < reports.size(); ++i) reports[i].facts = std::move(facts[i]);
  std::erase_if(reports, [](const LeaseReport& report) { return report.facts.state == Index::BlockFacts::State::none; });
  return reports;
}

std::vector<std::pair<std::string, std::uint64_t>> Store::stats() {
  const Call call(*attachment_);
  drain_if_free(*attachment_, call.index());
  const std::vector<ClientInfo> clients = attachment_->lease_directory.clients();
  std::vector<HeldLease> leased;
  for (const ClientInfo& client : clients) {
    if (client.alive) leased.insert(leased.end(), client.leased.begin(), client.leased.end());
  }
  const std::uint64_t leased_bytes = nbytes_of(leased, leased_spans(call.index(), clients));
  const OldRead old_read = look_at_readers(*attachment_, call.index());
  const IndexStats index = call.index().stats();
  const std::uint64_t total = attachment_->payload->payload_bytes();
  const std::uint64_t taken =
      index.used_bytes + index.pending_bytes + index.ahead_bytes + index.retired_bytes - index.headroom_taken;
  const std::uint64_t spill_taken = index.spill_used_bytes + index.spill_pending_bytes + index.spill_retired_bytes;
  const std::uint64_t touched = attachment_->payload->touched_bytes();
  return {{"total_bytes", total},
          {"used_bytes", index.used_bytes},
          {"live_bytes", index.live_bytes},
          {"free_bytes", total - std::min(total, taken)},
          {"leased_bytes", leased_bytes},
          {"pending_bytes", index.pending_bytes},
          {"arena_bytes", index.ahead_bytes},
          {"retired_bytes", index.retired_bytes},
          {"reserved_bytes", index.reserved_bytes + index.headroom_taken},
          {"free_extent_bytes", index.free_bytes},  // reserved = used + pending + arena + retired + this
          {"largest_free_extent_bytes", index.largest_free},
          {"free_extents", index.free_extents},
          {"headroom_used_bytes", index.headroom_taken},
          {"warm_bytes", touched - std::min(touched, taken)},  // touched and kept for reuse
          {"huge_bytes", attachment_->payload->huge_bytes()},
          {"gather_pool_bytes", pooled_gather_nbytes()},
          // On disk; all that stands above is of memory.
          {"spilled_bytes", index.spill_used_bytes},
          {"spilled_live_bytes", index.spill_live_bytes},
          {"spill_total_bytes", index.spill_total_bytes},
          {"spill_free_bytes", index.spill_total_bytes - std::min(index.spill_total_bytes, spill_taken)},
          {"spill_pending_bytes", index.spill_pending_bytes},
          {"spill_retired_bytes", index.spill_retired_bytes},
          {"spill_reserved_bytes", index.spill_reserved_bytes},
          {"spill_free_extent_bytes", index.spill_free_bytes},  // reserved = spilled + pending + retired + this
          {"puts", index.puts},
          {"gets", attachment_->control->counters().total(Latency::get).count()},
          {"index_used_bytes", index.index_used_bytes},
          {"index_total_bytes", index.index_total_bytes},
          {"oldest_read_pid", old_read.pid},
          {"oldest_read_age_s", old_read.age_s},
          {"oldest_read_commits", old_read.commits},
          {"rows", static_cast<std::uint64_t>(index.rows)}};
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Store::write_lock_holds() {
  return attachment_->gate.hold_times().counts();
}

Counters& Store::counters() noexcept { return attachment_->control->counters(); }

std::vector<Index::PartitionCensus> Store::census() {
  const Call call(*attachment_);
  return call.index().census();
}

std::vector<Index::PartitionStats> Store::partition_stats() {
  const Call call(*attachment_);
  return call.index().partition_stats();
}

}  // namespace tq
