// Transactions and cursors over the tables. Values are views into LMDB's pages: valid until the transaction ends and, in
// a write transaction, until its next write.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "core/file_size_signal.hpp"
#include "core/gate.hpp"
#include "core/index/env.hpp"
#include "core/index/records.hpp"
#include "core/index/tables.hpp"

namespace tq::index {

class Txn {
 public:
  Txn(const Txn&) = delete;
  Txn& operator=(const Txn&) = delete;

  std::optional<std::string_view> get(const Key& key) const;
  Env& env() const { return env_; }
  MDB_txn* raw() const { return txn_; }
  // Pages of the index that hold records (those of LMDB's own trees included).
  std::uint64_t used_pages() const;

 protected:
  explicit Txn(Env& env) : env_(env) { env.ensure_own(); }
  ~Txn() = default;

  Env& env_;
  MDB_txn* txn_ = nullptr;
};

class ReadTxn : public Txn {
 public:
  explicit ReadTxn(Env& env);
  ~ReadTxn() { env_.give_reader(txn_); }
};

// How far a transaction may eat into the pages kept free for clears: puts stop at the reserve, marks (consumption,
// tags of the sampler) at half of it, what gives space back is never refused.
enum class Room { put, mark, release };

// The gate is entered before the transaction begins and left after it ended; without `commit` it is aborted.
class WriteTxn : public Txn {
 public:
  WriteTxn(Env& env, WriteGate& gate);
  ~WriteTxn();

  void put(const Key& key, std::string_view value);
  // Puts where nothing is; else returns what is there.
  std::optional<std::string_view> insert(const Key& key, std::string_view value);
  void erase(const Key& key);  // a missing key is Error(corrupt): the tables name each other
  bool erase_if_present(const Key& key);
  void commit(Room room);

  Counters counters;  // as read at begin; stored by commit when changed

 private:
  void check_room(Room room) const;

  GateHold entered_;
  FileSizeSignal file_size_;
  Counters stored_;
};

// As they stand in the index: what a write transaction changes of its own is not in them yet.
Counters stored_counters(const Txn& txn);

// Writes the first records of a fresh index: the format and the counters.
void first_write(Env& env, const Format& format, Span headroom, RowIndex first_row);

// Pages that only clears may use, and how many records a transaction that clears may touch, given the pages that are free
// now: at least so many that a clear fits into the reserve. See txn.cpp.
std::uint64_t reserve_pages(std::uint64_t total_pages);
std::size_t clear_units(const Txn& txn);

// Walks one table. Every move says whether it stands on a record of the table.
class Cursor {
 public:
  Cursor(const Txn& txn, Table table);
  ~Cursor() { mdb_cursor_close(cursor_); }
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  bool seek(const Key& key) { return move(key.view(), MDB_SET_RANGE); }  // the first record at or after the key
  bool find(const Key& key) { return move(key.view(), MDB_SET_KEY); }
  bool next() { return move({}, MDB_NEXT); }
  bool previous() { return move({}, MDB_PREV); }
  bool last_before(const Key& key);  // the last record before the key
  void erase();                      // write transactions only; then next() stands on the record that followed

  std::string_view tail() const { return key_.substr(1); }  // the key without the table's prefix
  std::string_view value() const { return value_; }

 private:
  bool move(std::string_view key, MDB_cursor_op op);

  MDB_cursor* cursor_ = nullptr;
  char prefix_;
  std::string_view key_;
  std::string_view value_;
};

// LMDB met a full map though few pages hold records: a reader that is not scheduled pins what commits meanwhile freed (at
// 10,000 commits a second, 16 MiB in 50 ms). One write's waiting for it.
class ReaderWait {
 public:
  // Outside a transaction. Clears the slots of dead readers and sleeps for the living ones; false when the records themselves
  // fill the map. Error(index_full) naming the oldest reader after 5 s, or at the call's own deadline; at once when an earlier
  // call of this process has waited for the same read already.
  bool once_more(Env& env);


 private:
  unsigned tries_ = 0;
  std::chrono::steady_clock::time_point began_;
  double limit_s_ = 0;
};

// The error of a map that is full, with what is there: the figures of the last commit, as the transaction that failed is over.
Error full_index(Env& env, const Error& error);

// Runs `body(txn)` in a write transaction of its own and commits. Where `ReaderWait` says so the body runs again: it
// must start from what it finds in the transaction.
template <class Body>
auto write(Env& env, WriteGate& gate, Room room, Body&& body) {
  for (ReaderWait wait;;) {
    try {
      WriteTxn txn(env, gate);
      auto result = body(txn);
      txn.commit(room);
      return result;
    } catch (const Error& error) {
      if (error.errno_value == MDB_MAP_FULL && wait.once_more(env)) continue;
      // Refusals for another reason (numbers that are used up, the block table) say what they are.
      const bool map_is_full = error.errno_value == MDB_MAP_FULL || (error.resource == nullptr && !error.figures.empty());
      if (error.code == ErrorCode::index_full && map_is_full) throw full_index(env, error);
      throw;
    }
  }
}

}  // namespace tq::index
