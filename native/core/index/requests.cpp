#include "core/index/requests.hpp"

#include <algorithm>
#include <utility>

namespace tq::index {
namespace {

constexpr std::uint64_t most_kept = 1u << 16;
constexpr std::size_t dropped_at_once = 4;  // by one that records another: more than one, so that they become fewer

Key id_key(std::string_view id) { return Key(Table::requests).name(id); }
Key order_key(std::uint64_t number) { return Key(Table::request_order).u64(number); }
std::string_view view(const RequestId& id) { return {id.data(), id.size()}; }

// u64 number in the order | u8 kind | u32 partition | u64 version | u64 shed rows | u64 fencing | i64 deadline | i64 rows |
// varint n | n x { varint distance of the first row from the end of the stretch before, zigzag | varint rows } | reply
struct Stored {
  std::uint64_t number = 0;
  RequestRecord record;
};

std::uint64_t zigzag(std::int64_t value) { return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63); }
std::int64_t unzigzag(std::uint64_t value) { return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1); }

std::string encode(std::uint64_t number, const RequestRecord& record) {
  std::vector<std::pair<RowIndex, std::int64_t>> stretches;  // in the order of the call, which need not ascend
  for (const RowIndex row : record.indexes) {
    if (!stretches.empty() && stretches.back().first + stretches.back().second == row) {
      ++stretches.back().second;
    } else {
      stretches.emplace_back(row, 1);
    }
  }
  Writer out;
  out.number(number).number(static_cast<std::uint8_t>(record.kind)).number(record.partition_id).number(record.partition_version);
  out.number(record.shed_rows).number(record.fencing).number(static_cast<std::uint64_t>(record.deadline_ns));
  out.number(static_cast<std::uint64_t>(record.rows)).varint(stretches.size());
  RowIndex end = 0;
  for (const auto& [first, count] : stretches) {
    out.varint(zigzag(first - end)).varint(static_cast<std::uint64_t>(count));
    end = first + count;
  }
  return std::string(out.bytes(record.reply).view());
}

Stored parse(std::string_view bytes, const Counters& counters) {
  Reader in(bytes);
  Stored stored;
  RequestRecord& record = stored.record;
  stored.number = in.number<std::uint64_t>();
  const auto kind = in.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(RequestKind::clear)) corrupt("a request of an unknown kind");
  record.kind = static_cast<RequestKind>(kind);
  record.partition_id = in.number<std::uint32_t>();
  record.partition_version = in.number<std::uint64_t>();
  record.shed_rows = in.number<std::uint64_t>();
  record.fencing = in.number<std::uint64_t>();
  record.deadline_ns = static_cast<std::int64_t>(in.number<std::uint64_t>());
  record.rows = static_cast<std::int64_t>(in.number<std::uint64_t>());
  const auto made = static_cast<std::uint64_t>(counters.rows_made());  // a stretch has no row twice
  RowIndex end = 0;
  for (std::uint64_t n = in.varint(); n > 0; --n) {
    const std::int64_t gap = unzigzag(in.varint());
    const std::uint64_t count = in.varint();
    if (gap < -end || gap > row_limit - end || count == 0 || count > made ||
        static_cast<std::int64_t>(count) > counters.row_end() - (end + gap)) {
      corrupt("a request on rows that cannot exist");
    }
    for (std::uint64_t i = 0; i < count; ++i) record.indexes.push_back(end + gap + static_cast<RowIndex>(i));
    end += gap + static_cast<RowIndex>(count);
  }
  record.reply = in.bytes(in.left());
  return stored;
}

struct Listed {
  std::uint64_t number = 0;
  std::int64_t time_ns = 0;
  std::string id;
};

Listed parse_listed(std::string_view tail, std::string_view value) {
  Reader in(value);
  Listed listed{key_u64(tail, 0), static_cast<std::int64_t>(in.number<std::uint64_t>()), std::string(in.bytes(in.left()))};
  if (listed.id.size() != sizeof(RequestId)) corrupt("the number of a request is no number");
  if (listed.time_ns < 0) corrupt("a request from before the clock began");
  return listed;
}

// The first up to `most` that are over. `next`: the number behind the last one.
std::vector<Listed> old_requests(const Txn& txn, std::uint64_t next, std::uint64_t kept, std::int64_t now_ns, std::size_t most) {
  std::vector<Listed> old;
  Cursor cursor(txn, Table::request_order);
  for (bool found = cursor.seek(Key(Table::request_order)); found && old.size() < most; found = cursor.next()) {
    Listed listed = parse_listed(cursor.tail(), cursor.value());
    const bool too_many = next - listed.number > kept;
    // A clock that stands before the record is that of another boot: such an index is not there, but who knows.
    if (!too_many && now_ns - listed.time_ns < request_kept_ns) break;
    old.push_back(std::move(listed));
  }
  return old;
}

std::size_t drop(WriteTxn& txn, const std::vector<Listed>& old) {
  for (const Listed& listed : old) {
    txn.erase(order_key(listed.number));
    txn.erase(id_key(listed.id));
  }
  return old.size();
}

}  // namespace

std::uint64_t most_requests(const Env& env) { return std::min(most_kept, env.total_pages()); }

std::optional<RequestRecord> find_request(const Txn& txn, const RequestId& id) {
  const auto value = txn.get(id_key(view(id)));
  if (!value) return std::nullopt;
  return std::move(parse(*value, stored_counters(txn)).record);
}

void refuse_applied(const Txn& txn, const RequestId& id) {
  if (!txn.get(id_key(view(id)))) return;
  throw Error(ErrorCode::already_applied, "what was asked for under this number was done before; find_request says what came of it");
}

void record_request(WriteTxn& txn, const ArmedRequest& armed, RequestRecord done, std::int64_t now_ns) {
  const std::uint64_t number = txn.counters.next_request++;
  done.reply = armed.reply;
  txn.put(id_key(view(armed.id)), encode(number, done));
  Writer out;
  txn.put(order_key(number), out.number(static_cast<std::uint64_t>(now_ns)).bytes(view(armed.id)).view());
  // Where only clears find room, each takes the place of an older one: what they need must not go to these.
  const Env& env = txn.env();
  const bool scarce = txn.used_pages() + reserve_pages(env.total_pages()) > env.total_pages();
  std::uint64_t kept = most_requests(env);
  if (scarce) {
    Cursor first(txn, Table::request_order);
    if (first.seek(Key(Table::request_order))) kept = std::min(kept, txn.counters.next_request - key_u64(first.tail(), 0) - 1);
  }
  drop(txn, old_requests(txn, txn.counters.next_request, std::max<std::uint64_t>(kept, 1), now_ns, dropped_at_once));
}

bool has_old_request(const Txn& txn, std::int64_t now_ns) {
  return !old_requests(txn, stored_counters(txn).next_request, most_requests(txn.env()), now_ns, 1).empty();
}

std::size_t drop_requests(WriteTxn& txn, std::int64_t now_ns, std::size_t most) {
  return drop(txn, old_requests(txn, txn.counters.next_request, most_requests(txn.env()), now_ns, most));
}

void check_requests(const Txn& txn, const Counters& counters) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(ErrorCode::corrupt, std::string("the index contradicts itself: ") + what + "; end this session and start a new one");
  };
  std::uint64_t listed = 0;
  std::optional<std::uint64_t> last;
  Cursor order(txn, Table::request_order);
  for (bool found = order.seek(Key(Table::request_order)); found; found = order.next()) {
    const Listed entry = parse_listed(order.tail(), order.value());
    require(!last || entry.number == *last + 1, "a gap in the order of requests");
    last = entry.number;
    const auto value = txn.get(id_key(entry.id));
    require(value && parse(*value, counters).number == entry.number, "a request in the order that is not there");
    ++listed;
  }
  require(!last || *last + 1 == counters.next_request, "requests that are not in their order");
  std::uint64_t stored = 0;
  Cursor all(txn, Table::requests);
  for (bool found = all.seek(Key(Table::requests)); found; found = all.next()) ++stored;
  require(stored == listed, "requests that are in no order");
}

}  // namespace tq::index
