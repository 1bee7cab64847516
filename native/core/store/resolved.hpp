// The answer to a get: rows x fields at one snapshot, and the bytes behind them, leased.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/index/index.hpp"
#include "core/memory/counters.hpp"
#include "core/memory/gather.hpp"
#include "core/memory/lease.hpp"
#include "core/memory/payload_segment.hpp"
#include "core/memory/private_mapping.hpp"
#include "core/store/columns.hpp"

namespace tq {

// Thread-safe. Outlives its store: what it needs (segment, leases) is co-owned. Made without leases it answers only what
// the index said; asking for bytes is Error(invalid).
class Resolved {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // `counters` live as long as `payload` does. `asked`: when the call began.
  Resolved(Resolution resolution, std::shared_ptr<const PayloadSegment> payload, std::vector<BlockLease> leases,
           Counters& counters, TimePoint asked);
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;

  const Resolution& resolution() const noexcept { return resolution_; }
  const std::vector<Piece>& pieces(std::size_t field) const;
  const BlockInfo& block(std::size_t block) const;
  const FieldLayout* layout(std::size_t field, std::size_t block) const;  // null: the block lacks the field

  // Every requested row exists and has every field of the answer.
  bool complete() const noexcept;
  // Columns of all requested rows. What lies in one stretch of at least `copy_below` bytes is viewed (unless no further mapping
  // can be made), the rest is copied, all of it at once. Error(corrupt): rows that are not what the request says.
  std::vector<Column> read(std::span<const ColumnRequest> requests, ReadMode mode, std::uint64_t copy_below);

  // [offset, offset + nbytes) of the block: on its private mapping, made at the first view and shared by all of this object,
  // or on the read-only one. The pointer co-owns mapping and lease. MappingLimitError: copy instead.
  std::shared_ptr<void> view(std::size_t block, std::uint64_t offset, std::uint64_t nbytes, bool shared);
  const std::byte* view_address(std::size_t block, std::uint64_t offset) const;  // valid while not released
  std::uint64_t copy_rows(std::size_t field, const std::vector<Piece>& pieces, std::byte* destination,
                          std::uint64_t destination_nbytes) const;
  std::vector<std::int64_t> row_nbytes(std::size_t field, const std::vector<Piece>& pieces) const;
  std::string column_bytes(std::size_t field, std::size_t block) const;
  void release();
  // Releases, and counts a get of all rows, which took from `asked` until now. For whoever handed tensors out.
  void finish();
  // Bytes that were handed out otherwise than by `read`.
  void count(std::uint64_t viewed_nbytes, std::uint64_t copied_nbytes) noexcept;

 private:
  using Leases = std::shared_ptr<const std::vector<BlockLease>>;
  const std::byte* bytes_of(const BlockInfo& block) const;  // read-only, in memory or in the spill file
  Leases leases() const;  // held while bytes are read, so that release() in another thread waits for nobody. Error(invalid)
  std::vector<FieldInBlock> blocks_without_field(const std::vector<BlockLease>& leases) const;
  std::shared_ptr<void> view_or_null(const Piece& piece, const CopyRange& source, ReadMode mode);
  std::vector<FieldInBlock> field_in_blocks(const std::vector<BlockLease>& leases, std::size_t field) const;

  const Resolution resolution_;
  const std::shared_ptr<const PayloadSegment> payload_;
  Counters& counters_;
  const TimePoint asked_;
  std::atomic<std::uint64_t> viewed_nbytes_{0};  // relaxed: sums
  std::atomic<std::uint64_t> copied_nbytes_{0};
  mutable std::mutex mutex_;
  Leases leases_;  // null: never leased, or released
  std::vector<std::shared_ptr<PrivateMapping>> mappings_;
};

}  // namespace tq
