// Wiring: creating, opening, and the child of a fork.
#include "core/index/index.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "core/index/impl.hpp"

namespace tq {

using namespace index;

namespace {

Format read_format(Env& env) {
  const ReadTxn txn(env);
  const auto value = txn.get(Key(Table::format));
  if (!value) throw Error(ErrorCode::layout_mismatch, "the index is not a finished one of this system: its format is missing");
  return Format::parse(*value);
}

// Of an index whose counters are damaged, none: whoever needs them says so.
Span read_headroom(Env& env) {
  const ReadTxn txn(env);
  const auto value = txn.get(Key(Table::counters));
  if (!value || value->size() != sizeof(Counters)) return {};
  Counters counters;
  std::memcpy(&counters, value->data(), sizeof counters);
  return {counters.headroom_begin, counters.headroom_bytes};
}

}  // namespace

void Index::create(const std::string& directory, std::uint64_t index_bytes, std::uint64_t payload_bytes, std::uint32_t max_slots,
                   std::uint64_t spill_bytes, Span headroom, RowIndex first_row) {
  if (max_slots == 0 || max_slots > 1u << BlockRef::slot_bits) {
    throw Error(ErrorCode::invalid, "a session with " + std::to_string(max_slots) + " blocks; it holds 1 to " +
                                        std::to_string(1u << BlockRef::slot_bits));
  }
  if (!may_exist(first_row) || first_row % rows_of_a_node != 0) {
    throw Error(ErrorCode::invalid, "global indexes begin at a multiple of 2**50 below 2**62, not at " + std::to_string(first_row));
  }
  Format format;
  format.payload_bytes = payload_bytes;
  format.spill_bytes = spill_bytes;
  format.max_slots = max_slots;
  if (getrandom(format.hash_seed, sizeof format.hash_seed, 0) != static_cast<ssize_t>(sizeof format.hash_seed)) {
    throw Error::system("could not seed the index", errno);
  }
  Env::format(directory, index_bytes);
  const std::shared_ptr<Env> env = Env::open(directory);
  first_write(*env, format, headroom, first_row);
}

Index::Index(const std::string& directory, WriteGate& gate, const ClaimJudge& judge) {
  auto env = Env::open(directory);
  const Format format = read_format(*env);
  KeyHasher hasher;
  hasher.seed[0] = format.hash_seed[0];
  hasher.seed[1] = format.hash_seed[1];
  const Span headroom = read_headroom(*env);
  impl_.reset(new Impl{std::move(env), gate, judge, format, hasher, headroom});
}

Index::~Index() = default;

std::uint64_t Index::payload_bytes() const noexcept { return impl_->format.payload_bytes; }
std::uint64_t Index::spill_bytes() const noexcept { return impl_->format.spill_bytes; }

void Index::reopen_in_child() {
  // A mutex of the caches may be held by a thread that does not exist here.
  static_cast<void>(impl_->caches.release());
  impl_->caches = std::make_unique<Impl::Caches>();
  impl_->env->reopen_in_child();
}

void Index::check_descriptor() const { impl_->env->check_descriptor(); }

std::optional<Index::OldRead> Index::oldest_reader() {
  impl_->env->ensure_own();
  const std::optional<OldestReader> reader = impl_->env->oldest_reader();
  if (!reader) return std::nullopt;
  return OldRead{reader->pid, reader->txn, reader->commits};
}

std::shared_ptr<ArmedRequest> Index::request(const RequestId& id, std::string reply) {
  return std::make_shared<ArmedRequest>(impl_->env.get(), id, std::move(reply));
}

std::optional<RequestRecord> Index::find_request(const RequestId& id) {
  const ReadTxn txn(*impl_->env);
  return index::find_request(txn, id);
}

std::size_t Index::drop_requests() {
  const std::int64_t now_ns = impl_->judge.now_ns();
  std::size_t all = 0;
  const auto some_are_old = [&] { return has_old_request(ReadTxn(*impl_->env), now_ns); };
  while (some_are_old()) {
    all += impl_->write(Room::release, [&](WriteTxn& txn) { return index::drop_requests(txn, now_ns, clear_units(txn) / 2); });
  }
  return all;
}

int Index::check_readers() {
  impl_->env->ensure_own();
  return impl_->env->check_readers();
}

}  // namespace tq
