// What an Index holds. The methods of Index are spread over publish, move, resolve, clear, tasks, status, stats and space
// files; index.cpp wires.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/index/env.hpp"
#include "core/index/index.hpp"
#include "core/index/keys.hpp"
#include "core/index/layout.hpp"
#include "core/index/claims.hpp"
#include "core/index/names.hpp"
#include "core/index/requests.hpp"
#include "core/index/row_check.hpp"
#include "core/index/runs.hpp"
#include "core/index/shed.hpp"
#include "core/index/space.hpp"
#include "core/index/tombstones.hpp"
#include "core/index/txn.hpp"

namespace tq {

namespace index {
inline std::int64_t row_count(const RowSelector& rows) {
  switch (rows.by) {
    case RowsBy::fresh:
      return rows.count;
    case RowsBy::index:
      return static_cast<std::int64_t>(rows.indexes.size());
    case RowsBy::key:
      return static_cast<std::int64_t>(rows.keys.size());
  }
  return 0;
}
}  // namespace index

struct Index::Impl {
  std::shared_ptr<index::Env> env;
  WriteGate& gate;
  const ClaimJudge& judge;
  index::Format format;
  index::KeyHasher hasher;
  Span headroom;  // constant, as `format` is
  // Facts that cannot change once committed; replaced, not cleared, in a forked child (their mutexes may be held there).
  struct Caches {
    index::FieldNames fields;
    index::PartitionFields partition_fields;
    index::LayoutCache layouts;
  };
  std::unique_ptr<Caches> caches = std::make_unique<Caches>();

  template <class Body>
  auto write(index::Room room, Body&& body) {
    return index::write(*env, gate, room, std::forward<Body>(body));
  }

  // The same, of a change that a caller asked for: recorded under the number that the thread has armed, if it has.
  // `note(result)` says what was done; nullopt: nothing, it was refused.
  template <class Body, class Note>
  auto write_asked(index::Room room, Body&& body, Note&& note) {
    const index::ArmedRequest* armed = index::ArmedRequest::of(env.get());
    if (armed == nullptr) [[likely]] return write(room, std::forward<Body>(body));
    bool recorded = false;
    auto result = write(room, [&](index::WriteTxn& txn) {
      index::refuse_applied(txn, armed->id);
      auto done = body(txn);
      std::optional<RequestRecord> record = note(done);
      recorded = record.has_value();
      if (record) index::record_request(txn, *armed, std::move(*record), judge.now_ns());
      return done;
    });
    if (recorded) armed->close();
    return result;
  }
  template <class Body>
  auto write_asked(index::Room room, Body&& body) {
    return write_asked(room, std::forward<Body>(body), [](const auto&) { return std::optional(RequestRecord{}); });
  }

  // Error(corrupt) for a block that lies neither in the payload or its headroom nor in the spill file.
  void check_span(Span span) const {
    const auto inside = [&](Span region) {
      return span.offset >= region.offset && span.offset - region.offset <= region.nbytes &&
             span.nbytes <= region.nbytes - (span.offset - region.offset);
    };
    if (inside({0, format.payload_bytes}) || inside(headroom) || inside({spill_base, format.spill_bytes})) return;
    index::corrupt("a block outside of the payload");
  }
  // The rows that a selector names, -1 where a key is unknown.
  std::vector<RowIndex> find_rows(const index::Txn& txn, const index::Partition& partition, const RowSelector& rows,
                                  index::DoomedRows& doomed) const;
  Resolution resolve_in(const index::Txn& txn, const std::string& partition, const RowSelector& rows,
                        const std::optional<std::vector<std::string>>& fields);
  void fill_answer(const index::Txn& txn, const index::Partition& partition, const RowSelector& rows,
                   const std::optional<std::vector<std::string>>& fields, Resolution& answer);
  // Removes the records of rows (segments, ascending; those that do not exist are passed over) inside `txn`, the row count
  // of the partition apart. Returns retired blocks.
  std::vector<BlockRef> remove_rows(index::WriteTxn& txn, index::Partition& partition, std::span<const index::Segment> rows);
  // Makes room within a partition: the oldest rows that no task was given, and nobody has claimed, are cleared inside `txn`.
  // See shed.hpp.
  index::Shed shed(index::WriteTxn& txn, index::Partition& partition, index::FlowAccount& flow, const index::ShedOrder& order);
  std::vector<BlockRef> shed_apart(const std::string& partition, const index::ShedOrder& order, std::uint64_t* rows);
  // Gives `choice.rows` (ascending, as segments) to `take`, which marks or claims them, and stores the task's next version and
  // the sampler's state: iff the version is still the one of the choice and every row is still there for the task.
  using TakeRows = std::function<void(index::WriteTxn& txn, const index::Partition& partition, std::uint64_t task,
                                      std::span<const index::Segment> rows, index::Verdicts& verdicts)>;
  // `grant`: what `take` fills in, for the record of the request.
  bool take_rows(const TaskChoice& choice, const TakeRows& take, const ClaimGrant* grant = nullptr);
  // Batches after the commit that doomed the rows, or the partition. Other processes may be at the same: every batch starts
  // from what it finds.
  std::vector<BlockRef> remove_doomed_rows(PartitionId partition);
  std::vector<BlockRef> remove_doomed_partition(PartitionId partition);
};

}  // namespace tq
