// From a user's key to its row. Keys have any length and content, so what stands in the table is a 64-bit hash, seeded
// per session; the full key is always compared with the one in rowinfo. Rows with equal hashes share a record.
//
// Keys that differ in their last bytes only stand side by side: above, 40 bits are the hash of the key without them, below
// come those bytes as they are. A put of 512 numbered keys into a partition of a million then rewrites a dozen pages instead of
// 512 (docs/decisions/009-scale.md). Who knows no seed can steer the lower bits only, and keys that share the upper ones by
// intent differ in the lower.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/rowinfo.hpp"
#include "core/index/tombstones.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

inline constexpr std::size_t max_key_nbytes = 64u << 10;

// SipHash-1-3 (Aumasson and Bernstein 2012), keyed with the session's seed.
std::uint64_t sip_hash(const std::uint64_t (&seed)[2], std::string_view bytes);

struct KeyHasher {
  std::uint64_t seed[2] = {};
  std::uint64_t mask = ~std::uint64_t{0};  // tests narrow it to make keys collide
  static constexpr std::size_t tail_nbytes = 3;
  std::uint64_t operator()(std::string_view key) const {
    const std::size_t stem = key.size() > tail_nbytes ? key.size() - tail_nbytes : 0;
    std::uint64_t tail = 0;
    for (const char byte : key.substr(stem)) tail = tail << 8 | static_cast<unsigned char>(byte);
    return (sip_hash(seed, key.substr(0, stem)) << (8 * tail_nbytes) | tail) & mask;
  }
};

// The keys of a call with their hashes, in the order of the hashes, so that the table is walked once.
class HashedKeys {
 public:
  HashedKeys(const KeyHasher& hasher, const std::vector<std::string>& keys);
  struct Hashed {
    std::uint64_t hash;
    std::int64_t position;
  };
  const std::vector<Hashed>& sorted() const { return sorted_; }
  const std::string& key(std::int64_t position) const { return keys_[static_cast<std::size_t>(position)]; }
  std::size_t size() const { return keys_.size(); }

 private:
  const std::vector<std::string>& keys_;
  std::vector<Hashed> sorted_;
};

// Throws Error(invalid) naming the keys: empty ones, longer ones than `max_key_nbytes`, and those that stand twice.
void check_new_keys(const HashedKeys& keys);

// The row of each key, in the order of the keys; -1: unknown. Rows cleared but not yet removed are unknown.
std::vector<RowIndex> look_up_keys(const Txn& txn, PartitionId partition, const HashedKeys& keys, DoomedRows& doomed);

// Adds key -> row for every key whose row is one of `fresh` (the others are there already).
void add_keys(WriteTxn& txn, PartitionId partition, const HashedKeys& keys, const std::vector<RowIndex>& rows, RowSpan fresh);
// Takes rows out of the records of these hashes.
struct HashedRow {
  std::uint64_t hash;
  RowIndex row;
};
void remove_keys(WriteTxn& txn, PartitionId partition, std::vector<HashedRow>& rows);

}  // namespace tq::index
