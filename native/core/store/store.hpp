// One process's attachment to a session: memory/ and index/ wired together. The two protocols that need both, get and
// retire, are in resolve.cpp and retire.cpp; this class holds no policy of its own.
//
// Thread-safe. Every call enters the fork gate shared, so that a fork never copies a half-done one, and fails with
// `closed` after close() and with `session_not_found` once the session was ended. A bytes argument given by address is
// kept alive by the caller for the duration of the call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/index/index.hpp"
#include "core/memory/write_gate.hpp"
#include "core/store/attachment.hpp"
#include "core/store/client_report.hpp"
#include "core/store/pending_block.hpp"
#include "core/store/resolved.hpp"
#include "core/store/session_snapshot.hpp"
#include "core/types.hpp"

namespace tq {

class Store {
 public:
  // Called between the slices of a wait, outside every lock; may throw (Ctrl-C).
  using Interrupt = std::function<void()>;

  struct Sizes {
    std::uint64_t payload_bytes = 0;
    std::uint64_t index_bytes = 0;
    std::uint64_t step_bytes = 0;
    std::uint64_t spill_bytes = 0;  // 0: no spill file
    RowIndex first_row = 0;         // see Index::create
  };

  static void format(const SessionFiles& files, const Sizes& sizes);
  explicit Store(const SessionFiles& files);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  void close();
  bool closed() const;
  OwnerId owner() const;
  void end_session();
  bool ended() const;

  // Waits for room up to timeout_s (nullopt: for ever; 0: not at all), then Error(storage_full).
  // `ahead`: a small block may come from what this process reserved ahead, and be a little larger.
  std::shared_ptr<PendingBlock> reserve(std::uint64_t nbytes, std::optional<double> timeout_s,
                                        const Interrupt& interrupt, bool ahead = false);
  // Room that only moves take (index/space.hpp). Error(storage_full) when it has none as large.
  std::shared_ptr<PendingBlock> reserve_headroom(std::uint64_t nbytes);
  // A place in the spill file, for what is rewritten there. Error(storage_full) also where the session has none.
  std::shared_ptr<PendingBlock> reserve_spilled(std::uint64_t nbytes);
  // `request.owner` and `request.reservation` are filled in here. On an error the pending block stays pending.
  PublishResult publish(PublishRequest& request, PendingBlock* block);
  // Returns the cells that moved. 0: the block was given back. `compaction`: counted as such.
  std::int64_t move(const Resolved& source, PendingBlock& block, const std::vector<FieldLayout>& fields, bool compaction = false);
  // See Index::sparse_blocks; with what lives of each, and whether it is leased.
  SparseBlocks sparse_blocks(BlockRef after, std::optional<Span> within = std::nullopt, bool spilled = false);
  // See Index; blocks that are leased now stay where they are.
  std::optional<Span> cheapest_window(std::uint64_t nbytes);
  std::optional<Span> cheapest_run(std::uint64_t nbytes, std::uint64_t most_moved);
  // From its beginning on (see Index), to be written to; null where that is not free.
  std::shared_ptr<PendingBlock> reserve_from(Span span);
  // Its free pieces, not to be written to: so that what leaves the window does not come back into it.
  std::vector<std::shared_ptr<PendingBlock>> reserve_within(Span window);
  std::shared_ptr<Resolved> resolve(const std::string& partition, const RowSelector& rows,
                                    const std::optional<std::vector<std::string>>& fields, bool lease);

  std::pair<bool, std::vector<RowIndex>> find_keys(const std::string& partition, const std::vector<std::string>& keys);
  RowListing list_rows(const std::string& partition);
  RowListing describe_rows(const std::string& partition, const std::vector<RowIndex>& indexes);
  void merge_tags(const std::string& partition, const std::vector<RowIndex>& indexes,
                  const std::vector<std::string>& tags);
  std::int64_t clear_rows(const std::string& partition, const RowSelector& rows);
  bool clear_partition(const std::string& partition);
  std::vector<std::string> partitions();
  PartitionId ensure_partition(const std::string& partition);
  std::vector<std::string> field_names(const std::string& partition);
  ProductionStatus production(const std::string& partition, const std::vector<std::string>& fields,
                              const std::optional<std::vector<RowIndex>>& indexes);
  Index::ConsumptionStatus consumption(const std::string& partition, const std::string& task);
  std::optional<std::int64_t> consumed_rows(const std::string& partition, const std::string& task);
  std::int64_t unconsumed_rows(const std::string& partition);
  TaskSnapshot task_snapshot(const std::string& partition, const std::string& task,
                             const std::vector<std::string>& fields);
  bool task_commit(const std::string& partition, const std::string& task, std::uint64_t task_version,
                   const std::vector<std::string>& fields, const std::vector<RowIndex>& consumed,
                   const std::string& sampler_state);
  void mark_rows(const std::string& partition, const std::string& task, const std::vector<RowIndex>& rows,
                 const std::optional<std::string>& sampler_state);
  bool rename_partition(const std::string& partition, const std::string& to, std::uint64_t next_claim);
  void task_reset(const std::string& partition, const std::optional<std::string>& task);
  // Claims are this process's, as its lease file says: they are over when it dies or closes the session. See index.hpp.
  std::optional<ClaimGrant> claim(const TaskChoice& choice, std::int64_t lease_ns);
  void finish_claim(const std::string& partition, const std::string& task, std::uint64_t fencing, bool consumed);
  std::int64_t extend_claim(const std::string& partition, const std::string& task, std::uint64_t fencing, std::int64_t lease_ns);
  // Removes claims that are over and wakes whoever waits for their rows. Returns the number of partitions concerned.
  std::size_t drop_claims();
  // Held by the calling thread, which also lets go of it. `interrupted`: see robust_lock.hpp.
  std::unique_ptr<TaskLock> lock_task(const std::string& partition, const std::string& task, double timeout_s,
                                      robust_lock::Interrupted interrupted);

  // The whole session at one snapshot, all its blocks leased. The check after leasing is that of resolve.
  std::shared_ptr<SessionSnapshot> save();
  // One block a size, or none at all: Error(storage_full). Does not wait.
  std::vector<std::shared_ptr<PendingBlock>> reserve_all(const std::vector<std::uint64_t>& sizes);
  // One commit puts `session` in the place of all rows, its i-th block in blocks[i]. On an error nothing changed. `check_only`:
  // it is looked at whether these are tables of a session that lie in these blocks, and nothing changes.
  void load(const SavedSession& session, const std::vector<std::shared_ptr<PendingBlock>>& blocks, bool check_only = false);

  // Numbers of requests: see index/requests.hpp.
  std::shared_ptr<index::ArmedRequest> request(const RequestId& id, std::string reply);
  std::optional<RequestRecord> find_request(const RequestId& id);
  std::size_t drop_requests();

  // Limits of partitions: see index.hpp. Whoever waits at them is woken.
  void set_limits(const std::string& pattern, const LimitRule& rule);
  bool remove_limits(const std::string& pattern);
  std::vector<std::pair<std::string, LimitRule>> limit_rules();
  LimitReport limit_report(const std::string& partition);
  // Of each block of `resolved`, as it is now.
  std::vector<Index::HeldBlock> held_by(const Resolved& resolved);
  bool set_weight_version(const std::string& partition, std::int64_t version);
  void look_at_limits(const std::string& partition, const RowSelector& rows, std::uint64_t nbytes, const std::vector<std::string>& tags);
  // Another number after limits were set; 0: never. One load: what was seen of them under an epoch holds while it does. Who
  // sets limits may die between commit and epoch, so this only spares a look.
  std::uint32_t limit_epoch() const noexcept;

  // nullopt: the session's own word, bumped by every commit.
  std::uint32_t wake_word(const std::optional<std::string>& partition);
  bool wait_word(const std::optional<std::string>& partition, std::uint32_t seen, double timeout_s);
  // The same for a partition, until its word or its version differs: a producer that died between its commit and its wake is
  // noticed after a slice, of 0.1 s at first and 0.5 s later. `interrupt` is called after each slice, and when a signal arrived.
  bool wait_change(const std::string& partition, std::uint32_t seen, std::uint64_t version, double timeout_s,
                   const Interrupt& interrupt);
  void wake(const std::optional<std::string>& partition);
  std::uint64_t partition_version(const std::string& partition);

  std::uint64_t reclaim();
  std::vector<std::pair<OwnerId, std::int64_t>> reap();
  std::uint64_t populate(std::uint64_t nbytes);
  std::uint64_t make_huge(std::uint64_t nbytes);
  std::uint64_t trim();
  // See spill.hpp. At most 256 MiB a call (or one block that is larger), unless `contiguous`.
  std::uint64_t spill(std::uint64_t nbytes, bool contiguous = false);
  std::vector<ClientReport> clients();
  // By client and block. A claim whose block was freed meanwhile (its taker is about to notice) or is not published yet is
  // left out: it keeps nothing from being freed.
  std::vector<LeaseReport> leases();
  std::vector<std::pair<std::string, std::uint64_t>> stats();
  std::vector<Index::PartitionStats> partition_stats();
  std::vector<Index::PartitionCensus> census();
  // The whole index against itself and against the block table: Error(corrupt) that says what is wrong.
  void check();
  // Of all processes. Valid while this store is, also once it is closed: no call, as the segment stays mapped.
  Counters& counters() noexcept;
  // See HoldTimes::counts.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> write_lock_holds();

 private:
  std::shared_ptr<Attachment> attachment_;
};

}  // namespace tq
