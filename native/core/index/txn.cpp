#include "core/index/txn.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "core/pause.hpp"

namespace tq::index {
namespace {

MDB_val to_val(std::string_view bytes) { return MDB_val{bytes.size(), const_cast<char*>(bytes.data())}; }
std::string_view to_view(const MDB_val& val) { return {static_cast<const char*>(val.mv_data), val.mv_size}; }

// The two fences of the protocol in docs/internals.md. LMDB publishes its own pages with its own means; that says nothing
// about *our* bytes (payload in another segment, table words), hence:
//   publish: payload and table word, written by this thread  -> release fence -> meta page of the commit
//   read:    meta page of a commit, read at begin            -> acquire fence -> payload and table words named by it
// A reader whose snapshot holds a cell therefore sees the bytes that the cell names.
#if defined(__SANITIZE_THREAD__)
// The thread sanitizer does not model fences; read-modify-writes of one word order the same and it sees them.
std::atomic<unsigned> fence_word{0};
void release_fence() { fence_word.fetch_add(1, std::memory_order_acq_rel); }
void acquire_fence() { fence_word.fetch_add(1, std::memory_order_acq_rel); }
#else
void release_fence() { std::atomic_thread_fence(std::memory_order_release); }
void acquire_fence() { std::atomic_thread_fence(std::memory_order_acquire); }
#endif

}  // namespace

namespace {

// A transaction that touches U records rewrites at most about U leaves and the branches above them (2 U + 64 pages,
// generously), and LMDB reuses pages only two commits after they were freed: three times as many must stand ready.
constexpr std::uint64_t pages_for(std::uint64_t units) { return 3 * (2 * units + 64); }
constexpr std::uint64_t units_for(std::uint64_t pages) { return pages / 3 > 64 ? (pages / 3 - 64) / 2 : 0; }
// More would hold the write lock for longer than others should wait (about 5 us a record).
constexpr std::uint64_t max_clear_units = 2048;
std::uint64_t reserved_units(std::uint64_t total_pages) {
  return std::clamp<std::uint64_t>(units_for(total_pages / 3), 16, 512);
}

}  // namespace

std::uint64_t reserve_pages(std::uint64_t total_pages) {
  return std::min(pages_for(reserved_units(total_pages)), total_pages / 2);
}

std::size_t clear_units(const Txn& txn) {
  const std::uint64_t total = txn.env().total_pages();
  const std::uint64_t used = txn.used_pages();
  const std::uint64_t affordable = units_for(total > used ? total - used : 0);
  return static_cast<std::size_t>(std::clamp(affordable, reserved_units(total), max_clear_units));
}

std::optional<std::string_view> Txn::get(const Key& key) const {
  MDB_val k = to_val(key.view());
  MDB_val v;
  const int rc = mdb_get(txn_, env_.dbi(key.table()), &k, &v);
  if (rc == MDB_NOTFOUND) return std::nullopt;
  check(rc, "read the index");
  return to_view(v);
}

std::uint64_t Txn::used_pages() const {
  std::uint64_t pages = 2;  // the meta pages
  const auto add = [&](MDB_dbi dbi) {
    MDB_stat stat;
    check(mdb_stat(txn_, dbi, &stat), "measure the index");
    pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
  };
  add(0);  // LMDB's list of free pages
  add(1);  // its list of databases
  for (unsigned i = 0; i < n_databases; ++i) add(env_.dbis()[i]);
  return pages;
}

ReadTxn::ReadTxn(Env& env) : Txn(env) {
  txn_ = env.take_reader();
  acquire_fence();
  TQ_PAUSE_NOTHROW("index.reading");
}

WriteTxn::WriteTxn(Env& env, WriteGate& gate) : Txn(env), entered_(gate) {
  check(mdb_txn_begin(env.raw(), nullptr, 0, &txn_), "write to the index");
  acquire_fence();
  try {
    const auto value = get(Key(Table::counters));
    if (!value) corrupt("the counters are missing");
    counters = stored_ = Counters::parse(*value);
  } catch (...) {
    mdb_txn_abort(txn_);
    throw;
  }
}

Counters stored_counters(const Txn& txn) {
  const auto value = txn.get(Key(Table::counters));
  if (!value) corrupt("the counters are missing");
  return Counters::parse(*value);
}

void first_write(Env& env, const Format& format, Span headroom, RowIndex first_row) {
  MDB_txn* txn = nullptr;
  check(mdb_txn_begin(env.raw(), nullptr, 0, &txn), "create the index");
  const auto put = [&](Table table, std::string_view value) {
    const Key key(table);
    MDB_val k = to_val(key.view());
    MDB_val v = to_val(value);
    return mdb_put(txn, env.dbi(table), &k, &v, 0);
  };
  const std::string bytes = format.encode();
  int rc = put(Table::format, bytes);
  Counters counters;
  counters.headroom_begin = headroom.offset;
  counters.headroom_bytes = headroom.nbytes;
  counters.first_row = counters.next_row = first_row;
  // Above those of any session of that name before: a claim that outlived it must not fit a claim of this one.
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  counters.next_claim = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
  if (rc == MDB_SUCCESS) rc = put(Table::counters, counters.view());
  if (rc != MDB_SUCCESS) {
    mdb_txn_abort(txn);
    throw_lmdb(rc, "create the index");
  }
  check(mdb_txn_commit(txn), "create the index");
}

WriteTxn::~WriteTxn() {
  if (txn_ != nullptr) mdb_txn_abort(txn_);
}

void WriteTxn::put(const Key& key, std::string_view value) {
  MDB_val k = to_val(key.view());
  MDB_val v = to_val(value);
  check(mdb_put(txn_, env_.dbi(key.table()), &k, &v, 0), "write to the index");
}

std::optional<std::string_view> WriteTxn::insert(const Key& key, std::string_view value) {
  MDB_val k = to_val(key.view());
  MDB_val v = to_val(value);
  const int rc = mdb_put(txn_, env_.dbi(key.table()), &k, &v, MDB_NOOVERWRITE);
  if (rc == MDB_KEYEXIST) return to_view(v);
  check(rc, "write to the index");
  return std::nullopt;
}

bool WriteTxn::erase_if_present(const Key& key) {
  MDB_val k = to_val(key.view());
  const int rc = mdb_del(txn_, env_.dbi(key.table()), &k, nullptr);
  if (rc == MDB_NOTFOUND) return false;
  check(rc, "write to the index");
  return true;
}

void WriteTxn::erase(const Key& key) {
  if (!erase_if_present(key)) corrupt("a record that another one names is missing");
}

void WriteTxn::check_room(Room room) const {
  if (room == Room::release) return;
  const std::uint64_t total = env_.total_pages();
  const std::uint64_t reserve = room == Room::put ? reserve_pages(total) : reserve_pages(total) / 2;
  const std::uint64_t used = used_pages();
  if (used + reserve <= total) return;
  Error error(ErrorCode::index_full, "the metadata index of the session is full");
  error.figures = {{"would_use", used * env_.page_nbytes()}};
  throw error;  // `write` adds what is there
}

void WriteTxn::commit(Room room) {
  if (!(counters == stored_)) put(Key(Table::counters), counters.view());
  check_room(room);
  TQ_PAUSE("index.before_commit");
  release_fence();
  MDB_txn* txn = std::exchange(txn_, nullptr);  // freed by the commit, also when it fails
  const std::uint64_t id = mdb_txn_id(txn);
  int rc = mdb_txn_commit(txn);
  // A write that the limit cut short is EIO to LMDB.
  if (rc == EIO && !file_size_.allows(env_.total_pages() * env_.page_nbytes())) rc = EFBIG;
  check(rc, "commit to the index");
  env_.check_committed(id);
  TQ_PAUSE_NOTHROW("index.after_commit");
}

Cursor::Cursor(const Txn& txn, Table table) : prefix_(static_cast<char>(table)) {
  check(mdb_cursor_open(txn.raw(), txn.env().dbi(table), &cursor_), "read the index");
}

bool Cursor::move(std::string_view key, MDB_cursor_op op) {
  MDB_val k = to_val(key);
  MDB_val v;
  const int rc = mdb_cursor_get(cursor_, &k, &v, op);
  if (rc == MDB_NOTFOUND) {
    key_ = value_ = {};
    return false;
  }
  check(rc, "read the index");
  key_ = to_view(k);
  value_ = to_view(v);
  return !key_.empty() && key_.front() == prefix_;
}

bool Cursor::last_before(const Key& key) {
  return move(key.view(), MDB_SET_RANGE) || !key_.empty() ? previous() : move({}, MDB_LAST);
}

void Cursor::erase() { check(mdb_cursor_del(cursor_, 0), "write to the index"); }

}  // namespace tq::index
