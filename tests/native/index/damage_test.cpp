// Records that never were, written behind the index's back: each ends in Error(corrupt), and none in a loop over rows that
// nobody has, memory that no record needs or a byte outside of the file. The fuzz targets find such; these are the ones found.
#include <functional>

#include "core/index/bitmap.hpp"
#include "core/index/claims.hpp"
#include "core/index/env.hpp"
#include "core/index/limit_rules.hpp"
#include "core/index/names.hpp"
#include "core/index/records.hpp"
#include "core/index/tag_map.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::ErrorCode;
using tq::index::Key;
using tq::index::Table;
using tq::index::Writer;

namespace {

using Change = std::function<void(tq::index::WriteTxn&)>;

// A session with rows, keys and a task, whose index `change` was made to.
struct DamagedSession : Session {
  explicit DamagedSession(const Change& change) {
    put(*index, "p", by_key({"a", "b", "c"}), {"x", "y"}, {tag_map({{"t", "1"}}), "", ""}, &block);
    index->task_commit("p", "t", index->task_snapshot("p", "t", {"x"}).task_version, {"x"}, {0}, "state");
    partition = *index->find_partition("p");
    const auto env = tq::index::Env::open(directory.path());
    tq::index::WriteTxn txn(*env, gate);
    task = tq::index::TaskRecord::parse(*txn.get(Key(Table::tasks).u32(partition).name("t"))).id;
    change(txn);
    txn.commit(tq::index::Room::release);
    // What this process parsed before is right, and kept: the damage is for who opens the index now.
    reopened = std::make_unique<Index>(directory.path(), gate, judge);
  }
  BlockRef block;
  tq::PartitionId partition = 0;
  std::uint64_t task = 0;
  std::unique_ptr<Index> reopened;

};

std::string run_record(std::uint32_t count, std::uint64_t ref, std::uint32_t field) {
  Writer out;
  out.number(count).number(std::uint16_t{1}).number(ref).number(std::uint32_t{0}).number(std::uint16_t{1}).number(field);
  return std::string(out.view());
}

template <class Call>
void corrupt(Call&& call) {
  CHECK(error_of(call).code == ErrorCode::corrupt);
}

}  // namespace

TEST_CASE("a run of more rows than were given out is no listing of two milliards") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    txn.put(Key(Table::runs).u32(1).row(0), run_record(0x7fffffff, tq::BlockRef::make(1, 0).word, 1));
  });
  corrupt([&] { session.reopened->list_rows("p"); });
  corrupt([&] { session.reopened->production("p", {"x"}, std::nullopt); });
  corrupt([&] { session.reopened->task_snapshot("p", "t", {"x"}); });
  corrupt([&] { session.reopened->save([](const auto&) { return true; }); });
}

TEST_CASE("a run at the end of all numbers") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    txn.put(Key(Table::runs).u32(1).row(std::numeric_limits<std::int64_t>::max()), run_record(5, 1, 1));
  });
  corrupt([&] { session.reopened->list_rows("p"); });
}

TEST_CASE("runs that overlap") {
  DamagedSession session([](tq::index::WriteTxn& txn) { txn.put(Key(Table::runs).u32(1).row(1), run_record(2, 1, 1)); });
  corrupt([&] { session.reopened->list_rows("p"); });
}

TEST_CASE("a field with a number that no session gives asks for no table of its size") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    txn.put(Key(Table::runs).u32(1).row(0), run_record(3, tq::BlockRef::make(1, 0).word, 0xffffffff));
  });
  corrupt([&] { session.reopened->resolve("p", by_index({0}), std::nullopt); });
}

TEST_CASE("a claim on all rows there could ever be is neither listed nor marked row by row") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    Writer out;
    out.number(std::uint64_t{owner}).number(std::uint64_t{1} << 60).varint(0).varint((std::uint64_t{1} << 62) - 1);
    txn.put(tq::index::claims_of(1, 1).u64(5), out.view());
  });
  REQUIRE(session.task == 1);
  corrupt([&] { session.reopened->task_snapshot("p", "t", {"x"}); });
  corrupt([&] { session.reopened->finish_claim("p", "t", 5, true); });
}

TEST_CASE("a claim that ended before the clock began") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    Writer out;
    out.number(std::uint64_t{owner}).number(std::uint64_t{1} << 63).varint(0).varint(1);
    txn.put(tq::index::claims_of(1, 1).u64(5), out.view());
  });
  corrupt([&] { session.reopened->finish_claim("p", "t", 5, true); });
}

TEST_CASE("a request from before the clock began") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    Writer out;
    out.number(std::uint64_t{1} << 63).bytes(std::string(16, 'r'));
    txn.put(Key(Table::request_order).u64(0), out.view());
  });
  corrupt([&] { session.reopened->drop_requests(); });
}

TEST_CASE("a consumer of a limit, or a task, without a name is nobody's mistake in a call") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    tq::LimitRule rule;
    rule.consumers = {"t"};
    tq::index::merge_rule(txn, "p", rule);
    std::string value(*txn.get(Key(Table::limit_rules).name("p")));
    value.replace(value.size() - 3, 3, std::string(2, '\0'));
    txn.put(Key(Table::limit_rules).name("p"), value);
    txn.put(Key(Table::tasks).u32(1).name(""), *txn.get(Key(Table::tasks).u32(1).name("t")));
  });
  corrupt([&] { session.reopened->limit_rules(); });
  session.reopened->task_reset("p", std::nullopt);
}

TEST_CASE("marks of rows that cannot exist") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    txn.put(Key(Table::consumed).u32(1).u64(1).u64(~std::uint64_t{0} >> 1), std::string("\0\0\x01", 3));
  });
  corrupt([&] { session.reopened->save([](const auto&) { return true; }); });
}

TEST_CASE("a block outside of the payload is no block") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    tq::index::Cursor cursor(txn, Table::blocks);
    REQUIRE(cursor.seek(Key(Table::blocks)));
    std::string value(cursor.value());
    const std::uint64_t offset = std::uint64_t{1} << 40;
    std::memcpy(value.data(), &offset, sizeof offset);
    const std::uint64_t ref = tq::index::key_u64(cursor.tail(), 0);
    txn.put(Key(Table::blocks).u64(ref), value);
  });
  corrupt([&] { session.reopened->resolve("p", by_index({0}), std::nullopt); });
  // Nor is it given back as free room when its last row goes.
  const auto cleared = session.reopened->clear_rows("p", by_index({0, 1, 2}));
  corrupt([&] { session.reopened->free_retired(cleared.retired); });
}

TEST_CASE("free room that nobody backed is not given out") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    Writer out;
    out.number(std::uint64_t{1} << 50);
    txn.put(Key(Table::extents_by_offset).u64(std::uint64_t{1} << 40), out.view());
    txn.put(Key(Table::extents_by_size).u64(std::uint64_t{1} << 50).u64(std::uint64_t{1} << 40), {});
  });
  corrupt([&] { session.reopened->reserve(std::uint64_t{1} << 45, owner); });
}

TEST_CASE("counters that never were stop every writer") {
  DamagedSession session([](tq::index::WriteTxn& txn) { txn.counters.next_row = std::numeric_limits<std::int64_t>::max(); });
  corrupt([&] { session.reopened->reserve(64, owner); });
  corrupt([&] { session.reopened->list_rows("p"); });
}

TEST_CASE("a partition with less than no rows") {
  DamagedSession session([](tq::index::WriteTxn& txn) {
    auto record = *tq::index::partition_by_id(txn, 1);
    record.rows = -1;
    txn.put(Key(Table::partitions).u32(1), record.encode());
  });
  corrupt([&] { session.reopened->list_rows("p"); });
}

TEST_CASE("tags that are none are the index's fault, and a caller's are the caller's") {
  CHECK(error_of([] { tq::merge_tag_maps("x", tag_map({{"a", "1"}})); }).code == ErrorCode::corrupt);
  CHECK(error_of([] { tq::merge_tag_maps(tag_map({{"a", "1"}}), "x"); }).code == ErrorCode::invalid);
}

TEST_CASE("a counter that forgot rows, partitions and fields gives none of them out again") {
  const auto counted_back = [](auto change) {
    return [change](tq::index::WriteTxn& txn) { change(txn.counters); };
  };
  const auto damaged = [&](auto change) { return DamagedSession(counted_back(change)); };
  {
    DamagedSession session = damaged([](tq::index::Counters& counters) { counters.next_row = 1; });
    Index& index = *session.reopened;
    // Keys of rows beyond the counter, found by whatever call; one of them and a new key would be one row.
    corrupt([&] { put(index, "p", by_key({"b", "new"}), {"x"}); });
    corrupt([&] { index.find_keys("p", {"b"}, nullptr); });
    corrupt([&] { index.resolve("p", by_key({"c"}), std::nullopt); });
    corrupt([&] { index.clear_rows("p", by_key({"a", "b"})); });
    // Rows that exist are not written over, whether they are at the counter or behind it.
    corrupt([&] { put(index, "p", fresh(1), {"x"}); });
    corrupt([&] { put(index, "p", by_key({"new"}), {"x"}); });
  }
  {
    DamagedSession session = damaged([](tq::index::Counters& counters) { counters.next_row = 0; });
    corrupt([&] { put(*session.reopened, "p", by_key({"a", "new"}), {"x"}); });
    corrupt([&] { put(*session.reopened, "p", fresh(2), {"x"}); });
  }
  {
    DamagedSession session = damaged([](tq::index::Counters& counters) { counters.next_partition = 1; });
    corrupt([&] { put(*session.reopened, "another", fresh(2), {"x"}); });
  }
  {
    DamagedSession session = damaged([](tq::index::Counters& counters) { counters.next_field = 1; });
    corrupt([&] { put(*session.reopened, "p", fresh(2), {"another"}); });
  }
}

TEST_CASE("names of fields end at a number that is said, and known ones go on") {
  DamagedSession session([](tq::index::WriteTxn& txn) { txn.counters.next_field = tq::index::max_fields + 1; });
  const tq::Error error = error_of([&] { put(*session.reopened, "p", fresh(1), {"another"}); });
  CHECK(error.code == ErrorCode::index_full);
  CHECK_MESSAGE(std::string(error.what()).find("65536 names of fields") != std::string::npos, error.what());
  put(*session.reopened, "p", fresh(1), {"x", "y"});
}

TEST_CASE("a slot that the session never had") {
  DamagedSession session([](tq::index::WriteTxn& txn) { txn.put(Key(Table::free_slots).u32(0x00ffffff), {}); });
  // The lowest free slot is taken first: all others before it.
  CHECK(error_of([&] {
          for (int i = 0; i < 100; ++i) session.reopened->reserve(64, owner);
        }).code == ErrorCode::corrupt);
}
