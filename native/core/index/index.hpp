// The metadata index: an LMDB environment on tmpfs. Every public method is one transaction (or a bounded batch
// of them, where it says so); none touches payload bytes, the block table, leases or wake words: `Store` does.
//
// Thread-safe. No method keeps a read transaction open when it returns. Write transactions are entered through
// `WriteGate` (a timed robust mutex), so that a stuck writer costs a timeout that names it and not a hang.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/claim_judge.hpp"
#include "core/error.hpp"
#include "core/gate.hpp"
#include "core/index/partition_limits.hpp"
#include "core/index/request_record.hpp"
#include "core/index/saved_session.hpp"
#include "core/index/sparse_blocks.hpp"
#include "core/types.hpp"

namespace tq {

namespace index {
class ArmedRequest;
}

struct Reservation {
  Span span;
  BlockRef block;
};

enum class RowsBy { fresh, index, key };

// Which rows a put or a look-up addresses. fresh: `count` new rows (with `keys` empty or one unused key each).
// index: these rows. key: the rows of these keys; publish creates the ones that do not exist.
struct RowSelector {
  RowsBy by = RowsBy::fresh;
  std::int64_t count = 0;
  std::vector<RowIndex> indexes;
  std::vector<std::string> keys;
};

struct PublishRequest {
  std::string partition;
  RowSelector rows;
  OwnerId owner = 0;
  std::optional<Reservation> reservation;  // none: tags or bare rows only
  std::vector<FieldLayout> fields;         // of the reserved block, whose row i is the i-th addressed row
  // The block holds names of payload that lies on other nodes, in so many bytes: what the partition holds by it, for limits too.
  std::optional<std::uint64_t> elsewhere_bytes;
  std::vector<std::string> tags;           // empty, or one tag map (see tag_map.hpp) per row; "" changes nothing. Merged.
  // By index: rows that do not exist are made, with exactly these indexes. None that the session is yet to give out itself
  // (own_rows in records.hpp) may be among them. A row that is made again keeps the marks and claims that its index has.
  // With keys, one a row, all rows and keys are new.
  bool create_rows = false;
  bool exclusive_keys = false;             // by key: an existing key is an error instead of a row to overwrite
};

struct PublishResult {
  PartitionId partition_id = 0;
  std::uint64_t partition_version = 0;
  std::vector<RowIndex> indexes;
  std::vector<BlockRef> retired;  // blocks whose last cell this transaction removed; now listed as retired
  std::uint64_t shed_rows = 0;    // older rows that made room for it, as the partition's limits say
};

struct BlockInfo {
  BlockRef ref;
  Span span;
  std::int64_t n_rows = 0;
};

// Rows x fields at one snapshot. Fields with equal piece lists share one: field f has piece_lists[field_pieces[f]].
// Rows of a field that no piece covers are not ready. `layouts[f][b]` describes field f in blocks[b]
// (null where the block lacks the field).
struct Resolution {
  bool partition_found = false;
  PartitionId partition_id = 0;
  std::uint64_t partition_version = 0;
  std::vector<RowIndex> indexes;          // by key: -1 where the key is unknown
  std::vector<std::int64_t> gone;         // positions whose row does not exist (cleared, or never was)
  std::vector<std::string> fields;        // the requested names in order, or every field seen on any row (sorted)
  std::vector<BlockInfo> blocks;
  std::vector<std::vector<Piece>> piece_lists;
  std::vector<std::size_t> field_pieces;
  std::vector<std::vector<std::shared_ptr<const FieldLayout>>> layouts;
};

struct RowListing {
  bool partition_found = false;
  std::vector<RowIndex> indexes;                   // ascending: the order of creation
  std::vector<std::optional<std::string>> keys;    // nullopt: a row without a key
  std::vector<std::string> tags;                   // tag maps
};

struct ProductionStatus {
  bool partition_found = false;
  std::vector<RowIndex> indexes;
  std::vector<std::uint8_t> ready;   // indexes.size() x fields.size(), row-major
  std::vector<bool> field_known;     // per requested field: any row of the partition ever had it
};

// What a sampler works on, outside any transaction: rows that have all `fields`, are unmarked for `task` and not claimed.
struct TaskSnapshot {
  bool partition_found = false;
  PartitionId partition_id = 0;
  std::uint64_t task_version = 0;
  std::string sampler_state;
  std::vector<RowIndex> ready;
  std::vector<RowIndex> claimed;                // whatever fields they have
  std::optional<std::int64_t> next_lapse_ns;    // how long until the first of their claims runs out
};

// What a sampler made of a snapshot.
struct TaskChoice {
  std::string partition;
  std::string task;
  std::uint64_t task_version = 0;
  std::vector<std::string> fields;
  std::vector<RowIndex> rows;
  std::string sampler_state;
};

struct ClaimGrant {
  std::uint64_t fencing = 0;     // unique in the session, ascending
  std::int64_t deadline_ns = 0;  // on the judge's clock
};

struct IndexTestAccess;

struct IndexStats {
  std::uint64_t used_bytes = 0;      // spans of published blocks
  std::uint64_t live_bytes = 0;      // of them, the share that cells still name (row share of the block)
  std::uint64_t pending_bytes = 0;   // reserved and not yet published
  std::uint64_t ahead_bytes = 0;     // the same, for small puts to come: not in pending_bytes
  std::uint64_t retired_bytes = 0;
  std::uint64_t free_bytes = 0;      // free spans below the reserved end
  std::uint64_t reserved_bytes = 0;  // end of the part of the segment that is backed
  std::uint64_t largest_free = 0;
  std::uint64_t free_extents = 0;
  std::uint64_t headroom_taken = 0;  // in used, pending or retired, and not in reserved
  std::uint64_t index_used_bytes = 0;
  std::uint64_t index_total_bytes = 0;
  std::int64_t rows = 0;
  std::uint64_t puts = 0;
  std::uint64_t partitions = 0;
  // Of the spill file; what stands above is of memory.
  std::uint64_t spill_total_bytes = 0;
  std::uint64_t spill_reserved_bytes = 0;
  std::uint64_t spill_used_bytes = 0;
  std::uint64_t spill_live_bytes = 0;
  std::uint64_t spill_pending_bytes = 0;
  std::uint64_t spill_retired_bytes = 0;
  std::uint64_t spill_free_bytes = 0;
  std::uint64_t spill_largest_free = 0;
};

class Index {
 public:
  // `directory` exists. `create` formats an empty index of `index_bytes` (preallocated; a full tmpfs is an error here).
  // `max_slots`: words of the block table; a session holds that many blocks. `spill_bytes`: of the spill file; 0: there is none.
  // `headroom`: see reserve_headroom. `first_row`: the lowest index that is given out, a multiple of 2^50 (records.hpp).
  static void create(const std::string& directory, std::uint64_t index_bytes, std::uint64_t payload_bytes,
                     std::uint32_t max_slots = 1u << 22, std::uint64_t spill_bytes = 0, Span headroom = {}, RowIndex first_row = 0);
  Index(const std::string& directory, WriteGate& gate, const ClaimJudge& judge);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // As given to `create`.
  std::uint64_t payload_bytes() const noexcept;
  std::uint64_t spill_bytes() const noexcept;

  // After fork, in the child, before anything else: closes the inherited environment and opens it anew.
  void reopen_in_child();
  // Error(closed): a descriptor that it writes to was closed in this process, by somebody else. For every call to ask first.
  void check_descriptor() const;

  // ---- space ----------------------------------------------------------------------------------------------
  // Best fit over the free spans; recorded as pending under `owner`. `nbytes` is rounded up to 4096 when >= 64 KiB,
  // else to 64. `preferred`: offsets that are taken instead, the first that is free. nullopt: no free span is large enough
  // (the caller grows the segment, reclaims, waits or gives up).
  std::optional<Reservation> reserve(std::uint64_t nbytes, OwnerId owner, std::span<const std::uint64_t> preferred = {});
  // At the first place from `offset` on where a block of that size can begin; nullopt where that is not free.
  std::optional<Reservation> reserve_from(std::uint64_t offset, std::uint64_t nbytes, OwnerId owner);
  // Of the room behind the payload, for rows that move so that their blocks become free. nullopt: it has none as large.
  std::optional<Reservation> reserve_headroom(std::uint64_t nbytes, OwnerId owner);
  // Up to `count` reservations of `nbytes` side by side, all ahead of their use; fewer when together they are more than
  // a 256th of the free bytes, none where one has no room. One transaction.
  std::vector<Reservation> reserve_ahead(std::uint64_t nbytes, OwnerId owner, std::size_t count);
  // The segment is now backed up to `new_reserved_bytes` (idempotent; only grows). Adds the difference as free space.
  void grow(std::uint64_t new_reserved_bytes);
  // Gives a pending reservation back. Unknown ones are ignored (already reclaimed).
  void abandon(const Reservation& reservation, OwnerId owner);
  // The same for several, in one transaction.
  void abandon_all(const std::vector<Reservation>& reservations, OwnerId owner);
  // Gives back every pending reservation of a dead owner; returns them (their table words must be reset by the caller).
  std::vector<Reservation> abandon_owner(OwnerId owner);
  std::vector<BlockRef> retired();
  // Frees those of `unleased` that are still listed as retired; returns the freed bytes.
  std::uint64_t free_retired(const std::vector<BlockRef>& unleased);

  // ---- the spill file: spill.cpp has the argument -----------------------------------------------------------
  // As `grow`, of the spill file.
  void grow_spill(std::uint64_t new_reserved_bytes);
  // Published blocks that lie in memory, ascending by ref; those of partitions that are being cleared, and those in the
  // headroom of compaction, are left out.
  struct PlacedBlock { BlockRef ref; Span span; PartitionId partition = 0; };
  std::vector<PlacedBlock> blocks_in_memory();
  std::vector<Span> free_in_memory();  // ascending
  // The rows that name each of `blocks`, and maybe some that no longer do: no row can begin to name one later. Several read
  // transactions, none of which is long.
  struct RowStretch { PartitionId partition = 0; RowIndex first = 0; std::int64_t count = 0; };
  std::vector<std::vector<RowStretch>> rows_naming(const std::vector<PlacedBlock>& blocks);
  // Places in the spill file, pending under `owner`, as many of them as there is room for; nullopt where there is none. One
  // transaction.
  std::vector<std::optional<Reservation>> reserve_spill(const std::vector<std::uint64_t>& sizes, OwnerId owner);
  // Every cell that names `from` names `to` instead, whose bytes are the same; `from` is retired. A block that is not published
  // any more stays as it is, and its place is given back. `rows`: of rows_naming, for all blocks. One transaction.
  struct BlockMove { BlockRef from; Reservation to; bool moved = false; };
  void publish_spilled(std::vector<BlockMove>& moves, const std::vector<RowStretch>& rows, OwnerId owner);

  // ---- rows, cells, keys, tags ------------------------------------------------------------------------------
  // One transaction. By index: every row must exist (Error stale_rows lists those that do not), and nothing changes
  // otherwise. Creates the partition on first use.
  PublishResult publish(const PublishRequest& request);
  // `fields` empty optional: every field that any of the rows has. `in_write_txn`: resolve under the write lock.
  // `with_lease(resolution)` is called before the transaction closes when `in_write_txn` (so that leases can be stored).
  Resolution resolve(const std::string& partition, const RowSelector& rows,
                     const std::optional<std::vector<std::string>>& fields, bool in_write_txn = false,
                     const std::function<void(const Resolution&)>& with_lease = {});
  // Compare-and-set publication of moved rows: row i of the new block is the i-th row of `source`. A cell changes only
  // if it still names the (block, row) of `source`; returns how many cells moved (0: the reservation is abandoned).
  struct MoveResult { std::int64_t moved = 0; std::vector<BlockRef> retired; };
  MoveResult publish_moved(const Resolution& source, const Reservation& reservation, OwnerId owner,
                           const std::vector<FieldLayout>& fields);

  // Blocks that rows name in part only, or those that reach into `within`; behind `after`, a bounded number of them. Their sizes and
  // leases are for Store to say.
  // Costs one look at the counters while there are none. `spilled`: of the spill file, else of memory.
  SparseBlocks sparse_blocks(BlockRef after, std::optional<Span> within = std::nullopt, bool spilled = false);
  // A stretch of the payload of at least `nbytes` without anything pending, retired or of `leased`, of which least has to move
  // for all of it to be free, and no more than there is room for outside. nullopt: there is none.
  std::optional<Span> cheapest_window(std::uint64_t nbytes, const std::vector<BlockRef>& leased);
  // A stretch without anything pending, retired or of `leased`, of which `nbytes` are free, in pieces, and as little as can be
  // lives, at most `most_moved`. nullopt: there is none.
  std::optional<Span> cheapest_run(std::uint64_t nbytes, std::uint64_t most_moved, const std::vector<BlockRef>& leased);
  // What of the window is free, up to 512 pieces of it.
  std::vector<Reservation> reserve_within(Span window, OwnerId owner);

  // Removes rows (unknown ones ignored). Atomic to readers. Returns retired blocks.
  struct ClearResult { bool partition_found = false; std::int64_t rows = 0; std::vector<BlockRef> retired; };
  ClearResult clear_rows(const std::string& partition, const RowSelector& rows);
  // One commit hides the partition; the rest is removed in bounded batches (also by whoever comes next, if we die).
  ClearResult clear_partition(const std::string& partition);
  // Continues clears that a dead process left behind. Returns retired blocks.
  std::vector<BlockRef> finish_clears();

  std::vector<std::string> partitions();
  // Creates it when missing; the id numbers the wake word.
  PartitionId ensure_partition(const std::string& partition);
  std::optional<PartitionId> find_partition(const std::string& partition);
  std::uint64_t partition_version(PartitionId id);   // bumped by every commit that changes the partition; 0: unknown
  RowListing list_rows(const std::string& partition);
  // Keys and tags of these rows, in order; a row that does not exist: key nullopt, tags "".
  RowListing describe_rows(const std::string& partition, const std::vector<RowIndex>& indexes);
  std::vector<RowIndex> find_keys(const std::string& partition, const std::vector<std::string>& keys, bool* partition_found);
  // Rows that do not exist: Error stale_rows, nothing changes.
  std::uint64_t merge_tags(const std::string& partition, const std::vector<RowIndex>& indexes,
                           const std::vector<std::string>& tags);

  // ---- production and consumption ----------------------------------------------------------------------------
  // `fields` empty optional: see field_names. Rows: nullopt for all.
  ProductionStatus production(const std::string& partition, const std::vector<std::string>& fields,
                              const std::optional<std::vector<RowIndex>>& indexes);
  std::vector<std::string> field_names(const std::string& partition);   // any row has it now; sorted
  // Marks (0/1) of every row, ascending.
  struct ConsumptionStatus { bool partition_found = false; std::vector<RowIndex> indexes; std::vector<std::uint8_t> consumed; };
  ConsumptionStatus consumption(const std::string& partition, const std::string& task);
  // How many rows the task has consumed since it was reset, those that were cleared meanwhile included. nullopt: no such
  // partition.
  std::optional<std::int64_t> consumed_rows(const std::string& partition, const std::string& task);
  // Rows with data that no task has consumed. 0 for a partition that does not exist.
  std::int64_t unconsumed_rows(const std::string& partition);
  TaskSnapshot task_snapshot(const std::string& partition, const std::string& task, const std::vector<std::string>& fields);
  // Marks `consumed` and stores the sampler's state iff the task's version is still `task_version` and every row is still
  // ready, unmarked and not claimed. False on conflict.
  bool task_commit(const std::string& partition, const std::string& task, std::uint64_t task_version,
                   const std::vector<std::string>& fields, const std::vector<RowIndex>& consumed,
                   const std::string& sampler_state);
  // Marks `rows`, whatever they are, and stores the sampler's state (nullopt: it stays as it is): of a copy, which follows what
  // was decided elsewhere. Makes partition and task where they are missing.
  void mark_rows(const std::string& partition, const std::string& task, const std::vector<RowIndex>& rows,
                 const std::optional<std::string>& sampler_state);
  // Gives the partition another name, under which nothing else is from then on. The next claim's number is `next_claim` or more.
  // False: there is none of that name.
  bool rename_partition(const std::string& partition, const std::string& to, std::uint64_t next_claim);
  // Takes marks, claims and the sampler's state away. nullopt task: every task of the partition.
  void task_reset(const std::string& partition, const std::optional<std::string>& task);

  // ---- the whole session ---------------------------------------------------------------------------------------
  // `blocks[i]` is where `session.blocks[i]` lies, and `parts` are its bytes: [offset, offset + nbytes) of the saved block is
  // [source_offset, ...) of the published one. Ascending by block.
  struct SavedPart {
    std::int64_t block = 0;
    std::int64_t offset = 0;
    std::int64_t source_offset = 0;
    std::int64_t nbytes = 0;
  };
  struct Snapshot {
    SavedSession session;
    std::vector<BlockInfo> blocks;
    std::vector<SavedPart> parts;
  };
  // One transaction. `lease` is called inside it with every published block, ascending, before anything is listed; nullopt
  // when it says false (a block was retired since).
  std::optional<Snapshot> save(const std::function<bool(const std::vector<BlockRef>&)>& lease, bool in_write_txn = false);
  // One commit: all partitions are doomed (see clear_partition; finish_clears removes their records) and those of `saved` are
  // in their place, block i in reservation i. Indexes are those of `saved`, and no lower ones are given out from then on.
  void replace(const SavedSession& saved, const std::vector<Reservation>& reservations, OwnerId owner);
  // Whether `replace` would refuse `saved`. Changes nothing.
  void check_replacement(const SavedSession& saved, const std::vector<Reservation>& reservations);
  // A reservation becomes several, side by side; sizes are multiples of 64. What is left over is free.
  std::vector<Reservation> split(const Reservation& whole, OwnerId owner, const std::vector<std::uint64_t>& sizes);

  // ---- claims: see claims.hpp --------------------------------------------------------------------------------
  // As task_commit, but the rows become a claim of `owner`: they are ready for nobody else of that task until it is over, and
  // not consumed. nullopt on conflict.
  std::optional<ClaimGrant> claim(const TaskChoice& choice, OwnerId owner, std::int64_t lease_ns);
  // Ends a claim: its rows are consumed, or ready again. Error(claim_over) when it is over.
  void finish_claim(const std::string& partition, const std::string& task, std::uint64_t fencing, bool consumed);
  // From now on it is `owner`'s and runs for `lease_ns`. Returns the deadline. Error(claim_over).
  std::int64_t extend_claim(const std::string& partition, const std::string& task, std::uint64_t fencing, OwnerId owner,
                            std::int64_t lease_ns);
  // Removes the claims that are over, and those of `leaving`. Returns the partitions whose rows came back.
  std::vector<std::string> drop_claims(std::optional<OwnerId> leaving = std::nullopt);

  // ---- limits: see partition_limits.hpp ----------------------------------------------------------------------
  // What `rule` says holds from this commit on for all partitions that `pattern` names, those to come included.
  void set_limits(const std::string& pattern, const LimitRule& rule);
  // Takes the rule of exactly that name or pattern away: others hold then. False: there was none.
  bool remove_limits(const std::string& pattern);
  std::vector<std::pair<std::string, LimitRule>> limit_rules();
  // Of a partition that does not exist: what it would get.
  LimitReport limit_report(const std::string& partition);
  // The version that the trainer's weights have now, lower ones included; rows are compared with it and with what puts bring.
  // Creates the partition. False where no max_version_lag holds: then nothing changes.
  bool set_weight_version(const std::string& partition, std::int64_t version);
  // A look before room is reserved: Error(limit_exceeded) when a put of these rows, tags and bytes would be refused by what is
  // there now. That it says nothing is no promise.
  void look_at_limits(const std::string& partition, const RowSelector& rows, std::uint64_t nbytes, const std::vector<std::string>& tags);

  // ---- requests: see requests.hpp ------------------------------------------------------------------------------
  // A number for the next change of the thread that arms it. Error(already_applied) from calls under one that is on record.
  std::shared_ptr<index::ArmedRequest> request(const RequestId& id, std::string reply);
  std::optional<RequestRecord> find_request(const RequestId& id);
  // Removes those that are older than 10 minutes, or more than are kept; returns how many.
  std::size_t drop_requests();

  IndexStats stats();
  // `live_bytes`: of payload that its rows name, on other nodes too.
  struct PartitionStats { std::string name; std::int64_t rows; std::uint64_t live_bytes; std::int64_t keyed_rows; };
  std::vector<PartitionStats> partition_stats();
  // Rows by what they have: every field that some row of the partition has, some of them, none.
  struct PartitionCensus {
    std::string name;
    std::int64_t ready = 0, partial = 0, empty = 0;
    std::vector<std::pair<std::string, std::int64_t>> consumed;  // by task: rows handed out since its reset, cleared ones too
  };
  std::vector<PartitionCensus> census();  // one look at every run, not at every row
  // Bytes pending per owner, ascending; owners that have nothing reserved are left out, those that have it ahead only are not.
  std::vector<std::pair<OwnerId, std::uint64_t>> pending_by_owner();
  // What is on record about these blocks, for reports. none: it was freed, or is not published yet.
  struct BlockFacts {
    enum class State { none, live, retired };
    State state = State::none;
    Span span;
    std::uint64_t n_rows = 0;
    std::uint32_t n_fields = 0;
    std::uint64_t live_nbytes = 0;  // the share of the span that rows still name
    std::string partition;          // of a retired block: as it was called
  };
  std::vector<BlockFacts> describe_blocks(const std::vector<BlockRef>& blocks);
  // Where these blocks lie, published or retired; an empty span where the block is neither.
  std::vector<Span> block_spans(const std::vector<BlockRef>& blocks);
  // What the partition holds by these blocks (for its limits), and by how many cells of each; 0 where it is not published.
  struct HeldBlock { std::uint64_t nbytes = 0; std::uint64_t cells = 0; };
  std::vector<HeldBlock> held_by(const std::vector<BlockRef>& blocks);
  // The whole index against itself (check.hpp): Error(corrupt) that says what is wrong. Returns the published blocks.
  std::vector<BlockRef> check();
  int check_readers();  // LMDB's dead-reader check; returns how many slots it cleared
  struct OldRead { std::int64_t pid = 0; std::uint64_t txn = 0; std::uint64_t commits = 0; };
  // The read in progress that is the most commits behind, of any process; nullopt when none is behind.
  std::optional<OldRead> oldest_reader();

  struct Impl;  // opaque: index/impl.hpp

 private:
  friend struct IndexTestAccess;  // tests narrow the key hash, to make keys collide
  std::unique_ptr<Impl> impl_;
};

}  // namespace tq
