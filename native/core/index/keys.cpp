#include "core/index/keys.hpp"

#include <algorithm>
#include <bit>

namespace tq::index {
namespace {

class SipState {
 public:
  SipState(std::uint64_t k0, std::uint64_t k1)
      : a_(k0 ^ 0x736f6d6570736575), b_(k1 ^ 0x646f72616e646f6d), c_(k0 ^ 0x6c7967656e657261), d_(k1 ^ 0x7465646279746573) {}

  void word(std::uint64_t value) {
    d_ ^= value;
    round();
    a_ ^= value;
  }
  std::uint64_t finish() {
    c_ ^= 0xff;
    for (int i = 0; i < 3; ++i) round();
    return a_ ^ b_ ^ c_ ^ d_;
  }

 private:
  void round() {
    a_ += b_;
    b_ = std::rotl(b_, 13) ^ a_;
    a_ = std::rotl(a_, 32);
    c_ += d_;
    d_ = std::rotl(d_, 16) ^ c_;
    a_ += d_;
    d_ = std::rotl(d_, 21) ^ a_;
    c_ += b_;
    b_ = std::rotl(b_, 17) ^ c_;
    c_ = std::rotl(c_, 32);
  }
  std::uint64_t a_, b_, c_, d_;
};

Key hash_key(PartitionId partition, std::uint64_t hash) { return Key(Table::key_rows).u32(partition).u64(hash); }

std::vector<RowIndex> rows_of(std::string_view value) {
  Reader in(value);
  std::vector<RowIndex> rows;
  while (in.left() > 0) rows.push_back(static_cast<RowIndex>(in.number<std::uint64_t>()));
  return rows;
}

std::string shown(std::string_view key) {
  return key.size() <= 60 ? "'" + std::string(key) + "'"
                          : "'" + std::string(key.substr(0, 60)) + "...' (" + std::to_string(key.size()) + " bytes)";
}

}  // namespace

std::uint64_t sip_hash(const std::uint64_t (&seed)[2], std::string_view bytes) {
  SipState state(seed[0], seed[1]);
  const std::size_t whole = bytes.size() / 8;
  for (std::size_t i = 0; i < whole; ++i) state.word(load<std::uint64_t>(bytes.data() + 8 * i));
  char tail[8] = {};
  const std::string_view rest = bytes.substr(8 * whole);
  if (!rest.empty()) std::memcpy(tail, rest.data(), rest.size());
  state.word(load<std::uint64_t>(tail) | static_cast<std::uint64_t>(bytes.size()) << 56);
  return state.finish();
}

HashedKeys::HashedKeys(const KeyHasher& hasher, const std::vector<std::string>& keys) : keys_(keys) {
  sorted_.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) sorted_.push_back({hasher(keys[i]), static_cast<std::int64_t>(i)});
  std::sort(sorted_.begin(), sorted_.end(),
            [](const Hashed& a, const Hashed& b) { return a.hash != b.hash ? a.hash < b.hash : a.position < b.position; });
}

void check_new_keys(const HashedKeys& keys) {
  std::vector<std::string> repeated;
  const auto& sorted = keys.sorted();
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::string& key = keys.key(sorted[i].position);
    if (key.empty()) throw Error(ErrorCode::invalid, "a key is empty; a key has at least one byte");
    if (key.size() > max_key_nbytes) {
      Error error(ErrorCode::invalid, "key " + shown(key) + " is too long; a key has at most " + std::to_string(max_key_nbytes) + " bytes");
      error.names = {key};
      throw error;
    }
    for (std::size_t j = i; j-- > 0 && sorted[j].hash == sorted[i].hash;) {
      if (keys.key(sorted[j].position) == key) {
        repeated.push_back(key);
        break;
      }
    }
  }
  if (repeated.empty()) return;
  Error error(ErrorCode::invalid, "duplicate keys in one call: " + shown(repeated.front()) +
                                      (repeated.size() > 1 ? " and " + std::to_string(repeated.size() - 1) + " more" : ""));
  error.names = std::move(repeated);
  throw error;
}

std::vector<RowIndex> look_up_keys(const Txn& txn, PartitionId partition, const HashedKeys& keys, DoomedRows& doomed) {
  struct Candidate {
    RowIndex row;
    std::int64_t position;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(keys.size());
  {
    Cursor cursor(txn, Table::key_rows);
    for (const auto& [hash, position] : keys.sorted()) {
      if (!cursor.find(hash_key(partition, hash))) continue;
      Reader in(cursor.value());
      while (in.left() > 0) candidates.push_back({static_cast<RowIndex>(in.number<std::uint64_t>()), position});
    }
  }
  // Compared with the full keys in the order of rows, so that rowinfo, too, is walked once.
  const auto by_row = [](const Candidate& a, const Candidate& b) { return a.row < b.row; };
  std::sort(candidates.begin(), candidates.end(), by_row);
  std::vector<RowIndex> rows(keys.size(), -1);
  // A put gives new keys the rows from there on: one that a key has already would stand twice in it.
  if (!candidates.empty()) {
    const Counters counters = stored_counters(txn);
    const RowIndex own_end = own_rows(counters.first_row).end;
    for (const Candidate& candidate : candidates) {
      const RowIndex row = candidate.row;
      const bool made = row >= 0 && (row < counters.next_row || (row >= own_end && row < counters.other_end));
      if (!made) corrupt("a key of a row that never was");
    }
  }
  RowInfoReader info(txn, partition);
  for (const auto& [row, position] : candidates) {
    if (info.seek(row) && info.key() == keys.key(position) && !doomed.contains(row)) rows[static_cast<std::size_t>(position)] = row;
  }
  return rows;
}

void add_keys(WriteTxn& txn, PartitionId partition, const HashedKeys& keys, const std::vector<RowIndex>& rows, RowSpan fresh) {
  Writer out;
  for (const auto& [hash, position] : keys.sorted()) {
    const RowIndex row = rows[static_cast<std::size_t>(position)];
    if (!fresh.contains(row)) continue;
    out.clear();
    out.number(static_cast<std::uint64_t>(row));
    if (const auto others = txn.insert(hash_key(partition, hash), out.view())) {
      out.bytes(*others);  // another key with this hash
      txn.put(hash_key(partition, hash), out.view());
    }
  }
}

void remove_keys(WriteTxn& txn, PartitionId partition, std::vector<HashedRow>& rows) {
  std::sort(rows.begin(), rows.end(), [](const HashedRow& a, const HashedRow& b) { return a.hash < b.hash; });
  for (const auto& [hash, row] : rows) {
    const Key key = hash_key(partition, hash);
    const auto value = txn.get(key);
    if (!value) corrupt("a key without its row");
    const std::vector<RowIndex> all = rows_of(*value);
    Writer out;
    for (const RowIndex other : all) {
      if (other != row) out.number(static_cast<std::uint64_t>(other));
    }
    if (out.view().empty()) {
      txn.erase(key);
    } else {
      txn.put(key, out.view());
    }
  }
}

}  // namespace tq::index
