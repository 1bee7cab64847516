#include "core/store/resolved.hpp"

#include <string>
#include <utility>

#include "core/memory/fork_gate.hpp"
#include "core/memory/spill_file.hpp"
#include "core/pause.hpp"

namespace tq {

namespace {

void require_index(std::size_t index, std::size_t size, const char* what) {
  if (index >= size) {
    throw Error(ErrorCode::invalid, std::string(what) + " " + std::to_string(static_cast<std::int64_t>(index)) +
                                        " of an answer with " + std::to_string(size));
  }
}

void require_range(const BlockInfo& block, std::uint64_t offset, std::uint64_t nbytes) {
  if (offset > block.span.nbytes || nbytes > block.span.nbytes - offset) {
    throw Error(ErrorCode::invalid, "bytes [" + std::to_string(offset) + ", +" + std::to_string(nbytes) +
                                        ") lie outside the block of " + std::to_string(block.span.nbytes));
  }
}

const BlockLease& readable(const BlockLease& lease) {
  if (!lease.valid()) {
    throw Error(ErrorCode::closed, "the leases of this process were lost in a fork (no room for the hand-over); get again");
  }
  return lease;
}

}  // namespace

Resolved::Resolved(Resolution resolution, std::shared_ptr<const PayloadSegment> payload, std::vector<BlockLease> leases,
                   Counters& counters, TimePoint asked)
    : resolution_(std::move(resolution)), payload_(std::move(payload)), counters_(counters), asked_(asked) {
  if (leases.size() != resolution_.blocks.size()) return;  // resolved without leases
  mappings_.resize(leases.size());
  leases_ = std::make_shared<const std::vector<BlockLease>>(std::move(leases));
  if (payload_->spill() == nullptr) return;
  for (const BlockInfo& block : resolution_.blocks) {
    if (!block.span.spilled()) continue;
    payload_->spill()->check_length();  // once an answer: bytes beyond the end of a file are SIGBUS
    break;
  }
}

const std::byte* Resolved::bytes_of(const BlockInfo& block) const {
  return payload_->region(block.span).readable(block.span);
}

const std::vector<Piece>& Resolved::pieces(std::size_t field) const {
  require_index(field, resolution_.field_pieces.size(), "field");
  return resolution_.piece_lists[resolution_.field_pieces[field]];
}

const BlockInfo& Resolved::block(std::size_t block) const {
  require_index(block, resolution_.blocks.size(), "block");
  return resolution_.blocks[block];
}

const FieldLayout* Resolved::layout(std::size_t field, std::size_t block) const {
  require_index(field, resolution_.layouts.size(), "field");
  require_index(block, resolution_.layouts[field].size(), "block");
  return resolution_.layouts[field][block].get();
}

Resolved::Leases Resolved::leases() const {
  const std::lock_guard lock(mutex_);
  if (!leases_) throw Error(ErrorCode::invalid, "no leases: resolved with lease=False, or released");
  return leases_;
}

std::shared_ptr<void> Resolved::view(std::size_t block, std::uint64_t offset, std::uint64_t nbytes, bool shared) {
  const OperationGuard operation;
  const BlockInfo& info = this->block(block);
  require_range(info, offset, nbytes);
  const Leases held = leases();
  const BlockLease& lease = readable((*held)[block]);
  if (shared) {
    const std::shared_ptr<const std::byte> view = read_only_view(region_of(payload_, info.span), info.span, lease, offset, nbytes);
    // DLPack knows no constness; the mapping does.
    return std::shared_ptr<void>(view, const_cast<std::byte*>(view.get()));
  }
  std::shared_ptr<PrivateMapping> mapping;
  {
    const std::lock_guard lock(mutex_);
    if (!leases_) throw Error(ErrorCode::invalid, "no leases: released meanwhile");
    if (!mappings_[block]) mappings_[block] = PrivateMapping::map(region_of(payload_, info.span), info.span, lease);
    mapping = mappings_[block];
  }
  return std::shared_ptr<void>(mapping, mapping->at(offset, nbytes));
}

const std::byte* Resolved::view_address(std::size_t block, std::uint64_t offset) const {
  const OperationGuard operation;
  const BlockInfo& info = this->block(block);
  require_range(info, offset, 0);
  readable((*leases())[block]);
  return bytes_of(info) + offset;
}

std::vector<FieldInBlock> Resolved::blocks_without_field(const std::vector<BlockLease>& leases) const {
  std::vector<FieldInBlock> result(resolution_.blocks.size());
  for (std::size_t b = 0; b < result.size(); ++b) {
    const BlockInfo& info = resolution_.blocks[b];
    readable(leases[b]);
    result[b] = {bytes_of(info), info.span.nbytes, info.n_rows, nullptr};
  }
  return result;
}

std::vector<FieldInBlock> Resolved::field_in_blocks(const std::vector<BlockLease>& leases, std::size_t field) const {
  require_index(field, resolution_.layouts.size(), "field");
  std::vector<FieldInBlock> result = blocks_without_field(leases);
  for (std::size_t b = 0; b < result.size(); ++b) result[b].layout = resolution_.layouts[field][b].get();
  return result;
}

std::uint64_t Resolved::copy_rows(std::size_t field, const std::vector<Piece>& pieces, std::byte* destination,
                                  std::uint64_t destination_nbytes) const {
  const OperationGuard operation;
  const Leases held = leases();
  const std::vector<FieldInBlock> blocks = field_in_blocks(*held, field);
  TQ_PAUSE("copy.midway");  // addresses are known, bytes are not read yet: what only the leases keep true
  return gather_rows(blocks, pieces, destination, destination_nbytes);
}

std::vector<std::int64_t> Resolved::row_nbytes(std::size_t field, const std::vector<Piece>& pieces) const {
  const OperationGuard operation;
  const Leases held = leases();
  const std::vector<FieldInBlock> blocks = field_in_blocks(*held, field);
  std::size_t rows = 0;
  for (const Piece& piece : pieces) {
    require_index(static_cast<std::size_t>(piece.block), blocks.size(), "block");
    if (piece.count < 0 || piece.count > blocks[static_cast<std::size_t>(piece.block)].n_rows) {
      throw Error(ErrorCode::invalid, "a piece of " + std::to_string(piece.count) + " rows");
    }
    rows += static_cast<std::size_t>(piece.count);
  }
  std::vector<std::int64_t> result(rows);
  tq::row_nbytes(blocks, pieces, result);
  return result;
}

std::string Resolved::column_bytes(std::size_t field, std::size_t block) const {
  const OperationGuard operation;
  const FieldLayout* layout = this->layout(field, block);
  if (layout == nullptr) throw Error(ErrorCode::invalid, "the block lacks field '" + resolution_.fields[field] + "'");
  const BlockInfo& info = this->block(block);
  require_range(info, layout->data_offset, layout->data_nbytes);
  const Leases held = leases();
  readable((*held)[block]);
  const auto* data = reinterpret_cast<const char*>(bytes_of(info) + layout->data_offset);
  TQ_PAUSE("copy.midway");
  return std::string(data, layout->data_nbytes);
}

void Resolved::release() {
  const OperationGuard operation;
  Leases leases;
  std::vector<std::shared_ptr<PrivateMapping>> mappings;
  {
    const std::lock_guard lock(mutex_);
    leases.swap(leases_);
    mappings.swap(mappings_);
  }
}

void Resolved::count(std::uint64_t viewed_nbytes, std::uint64_t copied_nbytes) noexcept {
  if (viewed_nbytes > 0) viewed_nbytes_.fetch_add(viewed_nbytes, std::memory_order_relaxed);
  if (copied_nbytes > 0) copied_nbytes_.fetch_add(copied_nbytes, std::memory_order_relaxed);
}

void Resolved::finish() {
  release();
  counters_.took(Latency::get, std::chrono::steady_clock::now() - asked_);
  counters_.add(Counter::get_rows, resolution_.indexes.size());
  const std::uint64_t viewed = viewed_nbytes_.load(std::memory_order_relaxed);
  const std::uint64_t copied = copied_nbytes_.load(std::memory_order_relaxed);
  if (viewed > 0) counters_.add(Counter::get_viewed_bytes, viewed);
  if (copied > 0) counters_.add(Counter::get_copied_bytes, copied);
}

}  // namespace tq
