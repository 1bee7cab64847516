// The methods of Index that give out and take back bytes of the payload segment.
#include <algorithm>

#include "core/index/impl.hpp"
#include "core/pause.hpp"

namespace tq {

using namespace index;

namespace {

std::optional<Reservation> pending(WriteTxn& txn, const std::optional<Span>& span, OwnerId owner, std::uint32_t max_slots) {
  if (!span) return std::nullopt;
  const std::uint32_t slot = take_slot(txn, max_slots);
  const Reservation reservation{*span, BlockRef::make(txn.counters.next_generation++, slot)};
  add_pending(txn, owner, reservation);
  TQ_PAUSE("index.reserve.before_commit");
  return reservation;
}

}  // namespace

std::optional<Reservation> Index::reserve(std::uint64_t nbytes, OwnerId owner,
                                         std::span<const std::uint64_t> preferred) {
  return impl_->write(Room::put, [&](WriteTxn& txn) {
    return pending(txn, take_extent(txn, nbytes, preferred), owner, impl_->format.max_slots);
  });
}

std::optional<Reservation> Index::reserve_from(std::uint64_t offset, std::uint64_t nbytes, OwnerId owner) {
  return impl_->write(Room::put, [&](WriteTxn& txn) {
    return pending(txn, take_extent_from(txn, offset, nbytes), owner, impl_->format.max_slots);
  });
}

std::optional<Reservation> Index::reserve_headroom(std::uint64_t nbytes, OwnerId owner) {
  return impl_->write(Room::put, [&](WriteTxn& txn) -> std::optional<Reservation> {
    const auto span = take_headroom(txn, nbytes);
    if (!span) return std::nullopt;
    const Reservation reservation{*span, BlockRef::make(txn.counters.next_generation++, take_slot(txn, impl_->format.max_slots))};
    add_pending(txn, owner, reservation);
    return reservation;
  });
}

std::vector<Reservation> Index::reserve_ahead(std::uint64_t nbytes, OwnerId owner, std::size_t count) {
  return impl_->write(Room::put, [&](WriteTxn& txn) {
    const std::uint64_t affordable = txn.counters.free_bytes / 256 / std::max<std::uint64_t>(nbytes, 1);
    count = static_cast<std::size_t>(std::clamp<std::uint64_t>(affordable, 1, std::max<std::size_t>(count, 1)));
    std::vector<Reservation> reservations;
    std::optional<Span> whole = take_extent(txn, nbytes * count);
    if (!whole && count > 1) {
      count = 1;
      whole = take_extent(txn, nbytes);
    }
    if (!whole) return reservations;
    const std::uint64_t each = whole->nbytes / count;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = take_slot(txn, impl_->format.max_slots);
      const Reservation reservation{{whole->offset + i * each, each}, BlockRef::make(txn.counters.next_generation++, slot)};
      add_pending(txn, owner, reservation, /*ahead=*/true);
      reservations.push_back(reservation);
    }
    TQ_PAUSE("index.reserve.before_commit");
    return reservations;
  });
}

void Index::abandon_all(const std::vector<Reservation>& reservations, OwnerId owner) {
  impl_->write(Room::release, [&](WriteTxn& txn) {
    for (const Reservation& reservation : reservations) {
      if (take_pending(txn, owner, reservation)) give_back(txn, reservation);
    }
    return true;
  });
}

void Index::grow(std::uint64_t new_reserved_bytes) {
  if (new_reserved_bytes > impl_->format.payload_bytes) {
    throw Error(ErrorCode::invalid, "the segment cannot be backed up to " + std::to_string(new_reserved_bytes) + " bytes; it has " +
                                        std::to_string(impl_->format.payload_bytes));
  }
  impl_->write(Room::release, [&](WriteTxn& txn) {
    const std::uint64_t reserved = txn.counters.reserved_bytes;
    if (new_reserved_bytes > reserved) {
      txn.counters.reserved_bytes = new_reserved_bytes;
      give_extent(txn, {reserved, new_reserved_bytes - reserved});
    }
    return true;
  });
}

void Index::abandon(const Reservation& reservation, OwnerId owner) {
  impl_->write(Room::release, [&](WriteTxn& txn) {
    if (take_pending(txn, owner, reservation)) give_back(txn, reservation);
    return true;
  });
}

std::vector<Reservation> Index::abandon_owner(OwnerId owner) {
  std::vector<Reservation> all;
  for (bool more = true; more;) {
    const std::vector<Reservation> batch = impl_->write(Room::release, [&](WriteTxn& txn) {
      std::vector<Reservation> pending = pending_of(txn, owner);
      const std::size_t limit = clear_units(txn);
      more = pending.size() > limit;
      if (more) pending.resize(limit);
      for (const Reservation& reservation : pending) {
        take_pending(txn, owner, reservation);
        give_back(txn, reservation);
      }
      return pending;
    });
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

std::vector<BlockRef> Index::retired() {
  const ReadTxn txn(*impl_->env);
  return list_retired(txn);
}

std::uint64_t Index::free_retired(const std::vector<BlockRef>& unleased) {
  std::uint64_t nbytes = 0;
  for (std::size_t at = 0; at < unleased.size();) {
    std::size_t end = at;
    nbytes += impl_->write(Room::release, [&](WriteTxn& txn) {
      std::uint64_t freed = 0;
      end = std::min(unleased.size(), at + clear_units(txn));
      for (std::size_t i = at; i < end; ++i) freed += free_retired_block(txn, unleased[i]);
      TQ_PAUSE("index.free.before_commit");
      return freed;
    });
    at = end;
  }
  return nbytes;
}

std::vector<std::pair<OwnerId, std::uint64_t>> Index::pending_by_owner() {
  const ReadTxn txn(*impl_->env);
  std::vector<std::pair<OwnerId, std::uint64_t>> owners;
  Cursor cursor(txn, Table::pending);
  for (bool found = cursor.seek(Key(Table::pending)); found; found = cursor.next()) {
    const OwnerId owner = key_u64(cursor.tail(), 0);
    if (owners.empty() || owners.back().first != owner) owners.emplace_back(owner, 0);
    Reader in(cursor.value());
    const auto nbytes = in.number<std::uint64_t>();
    in.number<std::uint64_t>();
    if (in.number<std::uint8_t>() == 0) owners.back().second += nbytes;
  }
  return owners;
}

std::vector<Index::BlockFacts> Index::describe_blocks(const std::vector<BlockRef>& blocks) {
  const ReadTxn txn(*impl_->env);
  std::vector<BlockFacts> facts;
  facts.reserve(blocks.size());
  for (const BlockRef block : blocks) facts.push_back(block_facts(txn, block));
  return facts;
}

std::vector<Span> Index::block_spans(const std::vector<BlockRef>& blocks) {
  const ReadTxn txn(*impl_->env);
  std::vector<Span> spans;
  spans.reserve(blocks.size());
  for (const BlockRef block : blocks) spans.push_back(block_span(txn, block));
  return spans;
}

std::vector<Index::HeldBlock> Index::held_by(const std::vector<BlockRef>& blocks) {
  const ReadTxn txn(*impl_->env);
  std::vector<HeldBlock> held;
  held.reserve(blocks.size());
  for (const BlockRef block : blocks) {
    const auto value = txn.get(Key(Table::blocks).u64(block.word));
    const BlockRecord record = value ? BlockRecord::parse(*value) : BlockRecord{};
    held.push_back({record.held_bytes(), record.live_cells});
  }
  return held;
}

}  // namespace tq
