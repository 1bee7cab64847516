// A put: block, cells, keys and tags become visible in one commit, or nothing does.
#include "core/index/impl.hpp"
#include "core/index/limit_check.hpp"
#include "core/pause.hpp"

namespace tq {
namespace {

using namespace index;

void check_request(const PublishRequest& request) {
  const RowSelector& rows = request.rows;
  const auto n_keys = static_cast<std::int64_t>(rows.keys.size());
  const auto invalid = [](const std::string& what) { throw Error(ErrorCode::invalid, what); };
  switch (rows.by) {
    case RowsBy::fresh:
      if (rows.count < 0) invalid("a put of " + std::to_string(rows.count) + " rows");
      if (n_keys != 0 && n_keys != rows.count) {
        invalid(std::to_string(rows.count) + " new rows were given " + std::to_string(n_keys) + " keys");
      }
      break;
    case RowsBy::index:
      if (n_keys != 0 && !request.create_rows) invalid("rows are addressed by index and by key at once");
      if (n_keys != 0 && n_keys != row_count(rows)) invalid("not every row that is made was given its key");
      break;
    case RowsBy::key:
      break;
  }
  if (request.create_rows && rows.by != RowsBy::index) invalid("rows are made under given indexes only by index");
  if (row_count(rows) > max_run_rows) invalid("a put of " + std::to_string(row_count(rows)) + " rows; split it");
  if (!request.tags.empty() && static_cast<std::int64_t>(request.tags.size()) != row_count(rows)) {
    invalid(std::to_string(row_count(rows)) + " rows were given " + std::to_string(request.tags.size()) + " tag maps");
  }
  if (!request.reservation && !request.fields.empty()) invalid("fields were put without the block that holds them");
  if (request.reservation && request.fields.empty()) invalid("a block was put without fields");
  if (request.fields.size() > max_block_fields) {
    invalid("a put of " + std::to_string(request.fields.size()) + " fields; at most " + std::to_string(max_block_fields) +
            " go into one block");
  }
  if (request.elsewhere_bytes && (!request.reservation || *request.elsewhere_bytes > max_elsewhere_bytes)) {
    invalid("a put without a block, or of an impossible size, on other nodes");
  }
  if (request.reservation) check_layouts(request.fields, request.reservation->span.nbytes, row_count(rows));
}

// More rows must go than one transaction should touch: they go in transactions of their own, and the put begins anew.
struct MoreToShed {
  ShedOrder order;
};

// The parts of one publication; `run` is its transaction's body.
class Publication {
 public:
  Publication(Index::Impl& impl, const PublishRequest& request, const HashedKeys* keys)
      : impl_(impl), request_(request), keys_(keys) {}

  PublishResult run(WriteTxn& txn) {
    Partition partition = partition_to_write(txn, request_.partition);
    if (partition.record.limited) flow_.emplace(txn, partition);
    const std::uint64_t bytes_before = partition.record.live_bytes;
    find_rows(txn, partition);
    if (request_.reservation && !take_pending(txn, request_.owner, *request_.reservation)) {
      throw Error(ErrorCode::invalid, "the space reserved for this put is no longer its own: it was abandoned, published or "
                                      "reclaimed before; reserve anew");
    }
    field_ids(txn, partition.id);
    put_cells(txn, partition);
    put_keys_and_tags(txn, partition);
    if (flow_) keep_limits(txn, partition, bytes_before);
    txn.counters.puts += 1;
    store_partition(txn, partition);
    result_.partition_id = partition.id;
    result_.partition_version = partition.record.version;
    return std::move(result_);
  }

  const std::vector<FieldId>& fields() const { return fields_; }

 private:
  // Fills result_.indexes, and says in fresh_ which of them are new. With `create_rows` put_cells finds out.
  void find_rows(WriteTxn& txn, const Partition& partition) {
    const RowSelector& rows = request_.rows;
    if (rows.by == RowsBy::index) {
      result_.indexes = rows.indexes;
      if (request_.create_rows) {
        refuse_own_unused(txn.counters);
        if (keys_ != nullptr) refuse_known(rows_of_keys(txn, partition));
      } else if (!std::all_of(rows.indexes.begin(), rows.indexes.end(), may_exist)) {
        refuse_missing(txn, partition);
      }
      return;
    }
    fresh_.first = txn.counters.next_row;
    if (keys_ == nullptr) {
      result_.indexes.assign(static_cast<std::size_t>(rows.count), -1);
    } else {
      result_.indexes = rows_of_keys(txn, partition);
      if (rows.by == RowsBy::fresh || request_.exclusive_keys) refuse_known(result_.indexes);
    }
    const RowIndex end = own_rows(txn.counters.first_row).end;
    for (RowIndex& row : result_.indexes) {
      if (row != -1) continue;
      if (txn.counters.next_row >= end) throw Error(ErrorCode::index_full, "the session has used up its row numbers");
      row = txn.counters.next_row++;  // in the order of the call: the order of creation
    }
    fresh_.end = txn.counters.next_row;
    n_new_ = fresh_.count();
  }

  // An index that this session is yet to give out would then stand for two rows. Those that it never gives out are the caller's.
  void refuse_own_unused(const Counters& counters) const {
    const RowIndex end = own_rows(counters.first_row).end;
    std::vector<RowIndex> refused;
    for (const RowIndex row : request_.rows.indexes) {
      if (!may_exist(row) || (row >= counters.next_row && row < end)) refused.push_back(row);
    }
    if (refused.empty()) return;
    Error error(ErrorCode::invalid, "row " + std::to_string(refused.front()) + " cannot be made: the session gives out indexes from " +
                                        std::to_string(counters.next_row) + " to " + std::to_string(end - 1) +
                                        " itself, and there are none below 0 or from 2**62 on");
    error.rows = std::move(refused);
    throw error;
  }

  // -1: the key is new.
  std::vector<RowIndex> rows_of_keys(const Txn& txn, const Partition& partition) const {
    DoomedRows doomed(txn, partition);
    return look_up_keys(txn, partition.id, *keys_, doomed);
  }

  void refuse_known(const std::vector<RowIndex>& found) const {
    std::vector<std::string> known;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] != -1) known.push_back(request_.rows.keys[i]);
    }
    if (known.empty()) return;
    Error error(ErrorCode::invalid, std::to_string(known.size()) + " of the keys exist already in partition '" +
                                        request_.partition + "', the first of them '" + known.front().substr(0, 60) + "'");
    error.names = std::move(known);
    throw error;
  }

  void field_ids(WriteTxn& txn, PartitionId partition) {
    ids_.clear();
    for (const FieldLayout& field : request_.fields) ids_.push_back(ensure_field(txn, impl_.caches->fields, field.name));
    fields_ = ids_;
    std::sort(fields_.begin(), fields_.end());
    impl_.caches->partition_fields.add(txn, partition, fields_);
  }

  void put_cells(WriteTxn& txn, Partition& partition) {
    const BlockRef block = request_.reservation ? request_.reservation->block : BlockRef{};
    const std::vector<Segment> segments = make_segments(result_.indexes, false);
    if (request_.create_rows) bury_doomed(txn, partition, segments);
    std::vector<Segment> there;
    std::vector<Segment> fresh;
    if (request_.create_rows) {
      split_by_runs(txn, partition.id, segments, there, fresh);
      count_created(txn, partition, fresh);
      if (keys_ != nullptr && n_new_ != row_count(request_.rows)) {
        throw Error(ErrorCode::invalid, "a row that exists was given a key; it has one, or none, for good");
      }
    } else {
      refuse_doomed(txn, partition);
      split_by_index(segments, there, fresh);
    }
    LiveCells live;
    RunRewriter rewriter(txn, partition.id, live);
    const RewriteResult met = rewriter.plan(there, block, [&](const auto&...) { return &fields_; });
    if (met.rows_missing > 0) refuse_missing(txn, partition);
    rewriter.apply();
    if (fresh_.count() > 0) refuse_beyond(txn, partition.id);
    for (const Segment& segment : fresh) {
      add_fresh_run(txn, partition.id, segment.row, segment.count, block, segment.block_row, fields_);
    }
    txn.counters.rows += n_new_;
    partition.record.rows += n_new_;
    const LiveCells::Removed removed = live.apply(txn, partition.record.name);
    result_.retired.insert(result_.retired.end(), removed.retired.begin(), removed.retired.end());
    partition.record.live_bytes -= removed.held_bytes;
    if (!request_.reservation) return;
    BlockRecord record;
    record.span = request_.reservation->span;
    record.n_rows = result_.indexes.size();
    record.cells = record.live_cells = record.n_rows * fields_.size();
    record.partition = partition.id;
    record.elsewhere_bytes = request_.elsewhere_bytes;
    add_block(txn, block, record, encode_layouts(request_.fields, ids_), partition.record.name);
    if (record.live_cells == 0) return result_.retired.push_back(block);
    partition.record.live_bytes += record.held_bytes();
  }

  // The rows of fresh_ are new, the others are there.
  void split_by_index(std::span<const Segment> segments, std::vector<Segment>& there, std::vector<Segment>& fresh) const {
    for (const Segment& segment : segments) {
      const RowIndex end = segment.row + segment.count;
      const RowIndex from = std::clamp(fresh_.first, segment.row, end);
      const RowIndex to = std::clamp(fresh_.end, segment.row, end);
      const auto part = [&](std::vector<Segment>& parts, RowIndex first, RowIndex stop) {
        if (first < stop) parts.push_back({first, stop - first, segment.block_row + (first - segment.row), 0});
      };
      part(there, segment.row, from);
      part(fresh, from, to);
      part(there, to, end);
    }
  }

  // Rows that a run covers are there, the others are new.
  static void split_by_runs(const Txn& txn, PartitionId partition, std::span<const Segment> segments, std::vector<Segment>& there,
                            std::vector<Segment>& fresh) {
    RunCursor cursor(txn, partition);
    for (const Segment& segment : segments) {
      const RowIndex end = segment.row + segment.count;
      for (RowIndex row = segment.row; row < end;) {
        const bool found = cursor.seek(row);
        const bool covered = found && cursor.run().start <= row;
        const RowIndex stop = covered ? std::min(end, cursor.run().end()) : found ? std::min(end, cursor.run().start) : end;
        (covered ? there : fresh).push_back({row, stop - row, segment.block_row + (row - segment.row), 0});
        row = stop;
      }
    }
  }

  // Whose index says less than was given out would write over rows that exist.
  void refuse_beyond(const WriteTxn& txn, PartitionId partition) const {
    RunCursor runs(txn, partition);
    if (runs.seek(fresh_.first) && runs.run().start < own_rows(txn.counters.first_row).end) corrupt("rows beyond the last one that was given out");
  }

  // Rows that were cleared and whose records are still there are gone for everybody, so they are made like rows that never
  // were: what is left of them goes first, here, as the batches of their clear would meet the new row under their mark.
  void bury_doomed(WriteTxn& txn, Partition& partition, std::span<const Segment> segments) {
    if (partition.record.doomed_rows == 0) return;
    std::vector<Segment> buried;
    {
      DoomedRows doomed(txn, partition);
      for (const Segment& segment : segments) {
        for (RowIndex row = segment.row; row < segment.row + segment.count; ++row) {
          if (!doomed.contains(row)) continue;
          if (!buried.empty() && buried.back().row + buried.back().count == row) {
            ++buried.back().count;
          } else {
            buried.push_back({row, 1, 0, 0});
          }
        }
      }
    }
    if (buried.empty()) return;
    result_.retired = impl_.remove_rows(txn, partition, buried);
    partition.record.doomed_rows -= forget_doomed(txn, partition.id, buried);
  }

  // A row that is made again under its index is the sample that it was: who consumed it has, so it does not wait for anybody.
  void count_created(WriteTxn& txn, const Partition& partition, std::span<const Segment> fresh) {
    for (const Segment& segment : fresh) n_new_ += segment.count;
    if (n_new_ == 0) return;
    lowest_new_ = fresh.front().row;
    txn.counters.other_rows += n_new_;
    txn.counters.other_end = std::max(txn.counters.other_end, fresh.back().row + fresh.back().count);
    if (!flow_ || !flow_->record().limits.counts_rows()) return;
    ConsumedRows consumed(txn, partition.id, flow_->record().limits.consumers);
    for (const Segment& segment : fresh) {
      for (RowIndex row = segment.row; row < segment.row + segment.count; ++row) n_consumed_ += consumed.contains(row) ? 1 : 0;
    }
  }

  [[noreturn]] void refuse_missing(const Txn& txn, const Partition& partition) const {
    throw stale_rows(missing_rows(txn, partition, result_.indexes), "fields");
  }

  // Rows by key were looked up past the doomed ones; rows by index were not.
  void refuse_doomed(const Txn& txn, const Partition& partition) const {
    DoomedRows doomed(txn, partition);
    if (!doomed.any() || request_.rows.by != RowsBy::index) return;
    for (const RowIndex row : result_.indexes) {
      if (doomed.contains(row)) refuse_missing(txn, partition);
    }
  }

  void put_keys_and_tags(WriteTxn& txn, Partition& partition) {
    const RowSpan named = request_.create_rows ? RowSpan{0, row_limit} : fresh_;  // whose keys are new
    std::vector<RowUpdate> updates;
    for (std::size_t i = 0; i < result_.indexes.size(); ++i) {
      RowUpdate update{result_.indexes[i], {}, {}, false};
      if (keys_ != nullptr && named.contains(update.row)) update.key = request_.rows.keys[i];
      if (!request_.tags.empty()) update.tags = request_.tags[i];
      if (!update.key.empty() || !update.tags.empty()) updates.push_back(update);
    }
    const auto by_row = [](const RowUpdate& a, const RowUpdate& b) { return a.row < b.row; };
    if (!std::is_sorted(updates.begin(), updates.end(), by_row)) std::sort(updates.begin(), updates.end(), by_row);
    if (flow_) flow_->announce_tags(updates, fresh_);
    RowInfoWriter(txn, partition.id).apply(updates);
    if (keys_ == nullptr) return;
    add_keys(txn, partition.id, *keys_, result_.indexes, named);
    partition.record.keyed_rows += n_new_;
  }

  // With everything in its place, so that the figures are exact; a throw takes all of it back.
  void keep_limits(WriteTxn& txn, Partition& partition, std::uint64_t bytes_before) {
    FlowAccount& flow = *flow_;
    const PartitionLimits limits = flow.record().limits;
    Demand demand;
    demand.new_rows = n_new_ - n_consumed_;
    flow.add_rows(demand.new_rows, std::min(fresh_.first, lowest_new_));
    demand.bytes_before = bytes_before;
    if (request_.reservation) demand.own_bytes = request_.elsewhere_bytes.value_or(request_.reservation->span.nbytes);
    demand.own_oldest = flow.oldest_announced();
    for (;;) {
      demand.bytes_after = partition.record.live_bytes;
      demand.rows_before = flow.record().unconsumed - demand.new_rows;
      if (demand.own_oldest) {
        demand.newest_after = flow.record().newest;
        demand.oldest_after = flow.oldest();
      }
      const auto excess = find_excess(limits, demand);
      if (!excess) break;
      if (excess->never || limits.when_exceeded != WhenExceeded::shed) throw limit_error(request_.partition, limits, *excess);
      const ShedOrder order = order_for(txn, partition, *excess);
      Shed shed = impl_.shed(txn, partition, flow, order);
      if (shed.more) throw MoreToShed{order};
      if (shed.rows == 0) throw limit_error(request_.partition, limits, *excess);
      result_.shed_rows += static_cast<std::uint64_t>(shed.rows);
      result_.retired.insert(result_.retired.end(), shed.retired.begin(), shed.retired.end());
    }
    flow.store();
  }

  // The rows that must go so that the put fits; of bytes an estimate, and the loop comes back when it was too low.
  ShedOrder order_for(const Txn& txn, const Partition& partition, const Excess& excess) const {
    ShedOrder order;
    order.spared = result_.indexes;
    std::sort(order.spared.begin(), order.spared.end());
    const std::string_view limit = excess.limit;
    order.all_or_none = limit != "max_bytes";
    if (limit == "max_version_lag") {
      order.before_version = static_cast<std::int64_t>(excess.wanted - excess.cap);
      order.rows = rows_before_version(txn, partition.id, *order.before_version);
      return order;
    }
    const std::uint64_t over = excess.there + excess.wanted - excess.cap;
    const std::uint64_t bytes_a_row = 
        std::max<std::uint64_t>(1, partition.record.live_bytes / static_cast<std::uint64_t>(std::max<std::int64_t>(1, partition.record.rows)));
    order.rows = static_cast<std::int64_t>(limit == "max_bytes" ? (over + bytes_a_row - 1) / bytes_a_row : over);
    return order;
  }

  Index::Impl& impl_;
  const PublishRequest& request_;
  const HashedKeys* keys_;
  RowSpan fresh_;                       // indexes that were given out here
  std::int64_t n_new_ = 0;              // rows that are made: those, or the ones of `create_rows` that were missing
  std::int64_t n_consumed_ = 0;         // of the latter, those that had their index before and were consumed
  RowIndex lowest_new_ = row_limit;     // of the latter
  std::optional<FlowAccount> flow_;  // of a partition that has limits
  std::vector<FieldId> ids_;     // in the order of request_.fields
  std::vector<FieldId> fields_;  // ascending
  PublishResult result_;
};

}  // namespace

PublishResult Index::publish(const PublishRequest& request) {
  check_request(request);
  // Hashed and checked before the write lock is taken.
  std::optional<HashedKeys> keys;
  if (!request.rows.keys.empty()) {
    keys.emplace(impl_->hasher, request.rows.keys);
    check_new_keys(*keys);
  }
  std::vector<FieldId> fields;
  std::uint64_t shed_rows = 0;
  std::vector<BlockRef> retired;
  const auto attempt = [&] {
    return impl_->write_asked(Room::put, [&](WriteTxn& txn) {
      Publication publication(*impl_, request, keys ? &*keys : nullptr);
      PublishResult published = publication.run(txn);
      fields = publication.fields();
      TQ_PAUSE("index.publish.before_commit");
      return published;
    }, [&](const PublishResult& published) {
      RequestRecord record;
      record.kind = RequestKind::publish;
      record.indexes = published.indexes;
      record.partition_id = published.partition_id;
      record.partition_version = published.partition_version;
      record.shed_rows = published.shed_rows + shed_rows;
      return std::optional(std::move(record));
    });
  };
  PublishResult result;
  for (;;) {
    try {
      result = attempt();
      break;
    } catch (const MoreToShed& more) {
      const std::uint64_t before = shed_rows;
      const std::vector<BlockRef> gone = impl_->shed_apart(request.partition, more.order, &shed_rows);
      retired.insert(retired.end(), gone.begin(), gone.end());
      if (shed_rows == before) continue;  // somebody else was faster
    }
  }
  result.shed_rows += shed_rows;
  result.retired.insert(result.retired.end(), retired.begin(), retired.end());
  impl_->caches->partition_fields.remember(result.partition_id, fields);
  TQ_PAUSE("index.publish.after_commit");
  return result;
}

}  // namespace tq
