#include "core/index/saved_session.hpp"
#include "core/index/tombstones.hpp"
#include "core/index/txn.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::SavedSession;

namespace {

tq::Index::Snapshot saved(Index& index, std::vector<BlockRef>* leased = nullptr) {
  auto snapshot = index.save([&](const std::vector<BlockRef>& blocks) {
    if (leased != nullptr) *leased = blocks;
    return true;
  });
  REQUIRE(snapshot.has_value());
  return std::move(*snapshot);
}

std::vector<Reservation> reserve_for(Index& index, const SavedSession& session) {
  std::vector<Reservation> reservations;
  for (const tq::SavedBlock& block : session.blocks) reservations.push_back(reserve(index, block.nbytes));
  return reservations;
}

void load(Index& index, const SavedSession& session) {
  index.replace(session, reserve_for(index, session), owner);
  index.finish_clears();
}

void same(const SavedSession& a, const SavedSession& b) {
  CHECK(a.next_row == b.next_row);
  CHECK(a.partitions == b.partitions);
  REQUIRE(a.blocks.size() == b.blocks.size());
  for (std::size_t i = 0; i < a.blocks.size(); ++i) CHECK(a.blocks[i].elsewhere_bytes == b.blocks[i].elsewhere_bytes);
  REQUIRE(a.runs.size() == b.runs.size());
  for (std::size_t i = 0; i < a.runs.size(); ++i) {
    CHECK(a.runs[i].partition == b.runs[i].partition);
    CHECK(a.runs[i].first == b.runs[i].first);
    CHECK(a.runs[i].count == b.runs[i].count);
    CHECK(a.runs[i].n_cells == b.runs[i].n_cells);
  }
  CHECK(a.cell_fields.size() == b.cell_fields.size());
  REQUIRE(a.rows.size() == b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    CHECK(a.rows[i].row == b.rows[i].row);
    CHECK(a.keys.at(i) == b.keys.at(i));
    CHECK(a.tags.at(i) == b.tags.at(i));
  }
  REQUIRE(a.tasks.size() == b.tasks.size());
  for (std::size_t i = 0; i < a.tasks.size(); ++i) {
    CHECK(a.tasks[i].name == b.tasks[i].name);
    CHECK(a.tasks[i].sampler_state == b.tasks[i].sampler_state);
    REQUIRE(a.tasks[i].consumed.size() == b.tasks[i].consumed.size());
    for (std::size_t k = 0; k < a.tasks[i].consumed.size(); ++k) {
      CHECK(a.tasks[i].consumed[k].first == b.tasks[i].consumed[k].first);
      CHECK(a.tasks[i].consumed[k].count == b.tasks[i].consumed[k].count);
    }
  }
}

// Rows with and without keys, overwritten in part, cleared in part, consumed in part.
void fill(Index& index) {
  put(index, "keyed", fresh(300, numbered("key", 300)), {"a", "b", "c"}, std::vector<std::string>(300, tag_map({{"n", "1"}})));
  put(index, "keyed", by_key({"key7", "key8", "key200"}), {"b"});
  index.clear_rows("keyed", by_index(range(20, 15)));
  put(index, "plain", fresh(5000), {"x"});
  put(index, "plain", by_index(range(1000, 1200)), {"x", "y"}, {}, nullptr, 1'000'003);  // of names of payload elsewhere
  index.publish(request_of("plain", fresh(3)));
  index.ensure_partition("empty");
  const auto snapshot = index.task_snapshot("plain", "train", {"x"});
  REQUIRE(index.task_commit("plain", "train", snapshot.task_version, {"x"}, range(400, 700), "state"));
  index.clear_rows("plain", by_index({400, 450}));
}

}  // namespace

TEST_CASE("a saved session, loaded into another one, is the same session") {
  Session source;
  fill(*source.index);
  std::vector<BlockRef> leased;
  const auto snapshot = saved(*source.index, &leased);
  CHECK(snapshot.session.blocks.size() == snapshot.blocks.size());
  CHECK(leased.size() >= snapshot.blocks.size());
  Session target;
  put(*target.index, "keyed", fresh(10, numbered("other", 10)), {"z"});
  put(*target.index, "elsewhere", fresh(10), {"z"});
  load(*target.index, snapshot.session);
  check_whole_index(target.directory.path());
  same(saved(*target.index).session, snapshot.session);
  CHECK(target.index->partitions() == std::vector<std::string>{"keyed", "plain", "empty"});
  // What is left of the rows before is retired blocks, and indexes go on behind the highest of both.
  CHECK(put(*target.index, "new", fresh(1), {"x"}).indexes == std::vector<RowIndex>{snapshot.session.next_row});
  // Loaded over itself: every block is a new one.
  load(*target.index, snapshot.session);
  load(*source.index, snapshot.session);
  check_whole_index(target.directory.path());
  check_whole_index(source.directory.path());
  same(saved(*source.index).session, snapshot.session);
}

TEST_CASE("what rows stand for on other nodes is saved with them, and of rows that are being cleared is not") {
  Session source;
  const auto rows = put(*source.index, "p", fresh(10), {"a", "b"}, {}, nullptr, 2'000'000).indexes;
  put(*source.index, "p", by_index({rows[0], rows[1]}), {"b"});
  put(*source.index, "p", fresh(4), {"a"}, {}, nullptr, 0);
  source.index->clear_rows("p", by_index({rows[9]}));
  {
    // The first two rows, as somebody left them who died in the middle of clearing them.
    const auto env = tq::index::Env::open(source.directory.path());
    tq::index::WriteTxn txn(*env, source.gate);
    auto partition = tq::index::partition_by_name(txn, "p");
    const std::vector<tq::index::Segment> doomed = {{rows[0], 2, 0, 0}};
    tq::index::doom_rows(txn, partition->id, doomed);
    partition->record.doomed_rows += 2;
    partition->record.rows -= 2;
    txn.counters.rows -= 2;
    tq::index::store_partition(txn, *partition);
    txn.commit(tq::index::Room::release);
  }
  const auto snapshot = saved(*source.index);
  REQUIRE(snapshot.session.blocks.size() == 2);
  CHECK(snapshot.session.blocks[0].elsewhere_bytes == 1'400'000);
  CHECK(snapshot.session.blocks[1].elsewhere_bytes == 0);
  Session target;
  load(*target.index, snapshot.session);
  check_whole_index(target.directory.path());
  CHECK(target.index->partition_stats().at(0).live_bytes == 1'400'000);
  CHECK(target.index->stats().live_bytes < 1000);
  SavedSession impossible = snapshot.session;
  impossible.blocks[0].elsewhere_bytes = tq::index::max_elsewhere_bytes + 1;
  CHECK(error_of([&] { load(*target.index, impossible); }).code == tq::ErrorCode::invalid);
}

TEST_CASE("loaded rows can be put, cleared and consumed like any") {
  Session session;
  Index& index = *session.index;
  fill(index);
  load(index, saved(index).session);
  put(index, "keyed", by_key({"key7", "fresh"}), {"b", "c"});
  put(index, "plain", by_index(range(300, 100)), {"x"});
  const auto snapshot = index.task_snapshot("plain", "train", {"x"});
  CHECK(snapshot.sampler_state == "state");
  CHECK(std::find(snapshot.ready.begin(), snapshot.ready.end(), 401) == snapshot.ready.end());
  CHECK(index.task_commit("plain", "train", snapshot.task_version, {"x"}, {snapshot.ready.front()}, ""));
  index.clear_rows("keyed", by_key({"key7"}));
  index.clear_partition("plain");
  check_whole_index(session.directory.path());
}

TEST_CASE("a lease that cannot be had gives no snapshot, and the write transaction lists the same") {
  Session session;
  fill(*session.index);
  int asked = 0;
  const auto refused = session.index->save([&](const std::vector<BlockRef>&) { return ++asked > 1; });
  CHECK(!refused.has_value());
  const auto locked = session.index->save([](const std::vector<BlockRef>&) { return true; }, true);
  REQUIRE(locked.has_value());
  same(locked->session, saved(*session.index).session);
}

TEST_CASE("tables that are no session are refused, and nothing changes") {
  Session session;
  Index& index = *session.index;
  fill(index);
  const SavedSession good = saved(index).session;
  const std::vector<std::function<void(SavedSession&)>> damages = {
      [](SavedSession& s) { s.next_row = 10; },
      [](SavedSession& s) { s.next_row = -1; },
      [](SavedSession& s) { s.partitions[1] = s.partitions[0]; },
      [](SavedSession& s) { s.partitions[0].clear(); },
      [](SavedSession& s) { s.partitions.pop_back(); },
      [](SavedSession& s) { s.known_fields[0].push_back(""); },
      [](SavedSession& s) { s.blocks[0].partition = 9; },
      [](SavedSession& s) { s.blocks[0].n_rows = 1; },
      [](SavedSession& s) { s.blocks[0].n_rows = INT64_MAX; },
      [](SavedSession& s) { s.blocks[0].fields.clear(); },
      [](SavedSession& s) { s.blocks[0].fields[0].data_offset = 1u << 30; },
      [](SavedSession& s) { s.blocks[0].fields[1].name = s.blocks[0].fields[0].name; },
      [](SavedSession& s) { s.runs[0].partition = -1; },
      [](SavedSession& s) { s.runs[1].first = s.runs[0].first; },
      [](SavedSession& s) { std::find_if(s.runs.begin(), s.runs.end(), [](const auto& run) { return run.partition == 1; })->first = 0; },
      [](SavedSession& s) { s.runs[0].count = 0; },
      [](SavedSession& s) { s.runs[0].count = INT64_MAX; },
      [](SavedSession& s) { s.runs[0].n_cells = 1000000; },
      [](SavedSession& s) { std::swap(s.runs.front(), s.runs.back()); },
      [](SavedSession& s) { s.cells[0].block = -1; },
      [](SavedSession& s) { s.cells[0].block = 1000; },
      [](SavedSession& s) { s.cells[0].block_row = INT64_MAX; },
      [](SavedSession& s) { s.cells[0].n_fields = 5000; },
      [](SavedSession& s) { s.cells.push_back({0, 0, 1}); },
      [](SavedSession& s) { s.cell_fields[0] = 77; },
      [](SavedSession& s) { s.cell_fields[0] = s.cell_fields[1]; },
      [](SavedSession& s) { s.cell_fields.pop_back(); },
      [](SavedSession& s) { s.rows[0].row = 25; },
      [](SavedSession& s) { s.rows[1].row = s.rows[0].row; },
      [](SavedSession& s) { s.rows[0].partition = 3; },
      [](SavedSession& s) { s.rows.pop_back(); },
      [](SavedSession& s) { s.keys.ends[0] = -5; },
      [](SavedSession& s) { s.keys.ends.back() = INT64_MAX; },
      [](SavedSession& s) { std::copy_n("key1", 4, s.keys.bytes.begin()); },
      [](SavedSession& s) { s.tags.bytes[0] = 'x'; },
      [](SavedSession& s) { s.tasks[0].partition = 5; },
      [](SavedSession& s) { s.tasks.push_back(s.tasks[0]); },
      [](SavedSession& s) { s.tasks[0].consumed[0].first = -1; },
      [](SavedSession& s) { s.tasks[0].consumed[0].count = INT64_MAX; },
      [](SavedSession& s) { s.tasks[0].consumed.push_back({400, 1}); },
  };
  const std::vector<Reservation> reservations = reserve_for(index, good);
  for (std::size_t i = 0; i < damages.size(); ++i) {
    CAPTURE(i);
    SavedSession bad = good;
    damages[i](bad);
    CHECK(error_of([&] { index.replace(bad, reservations, owner); }).code == tq::ErrorCode::invalid);
  }
  CHECK(error_of([&] { index.replace(good, {}, owner); }).code == tq::ErrorCode::invalid);
  auto twice = reservations;
  twice[1] = twice[0];
  CHECK(error_of([&] { index.replace(good, twice, owner); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { index.replace(good, reservations, owner + 1); }).code == tq::ErrorCode::invalid);
  check_whole_index(session.directory.path());
  same(saved(index).session, good);
  index.replace(good, reservations, owner);
  index.finish_clears();
  check_whole_index(session.directory.path());
}

TEST_CASE("an index too small for both is full, and nothing changes") {
  Session source(64u << 20);
  for (int i = 0; i < 20; ++i) put(*source.index, "p", fresh(2000, numbered("a long key to fill pages with ", 2000, i * 2000)), {"x"});
  const SavedSession session = saved(*source.index).session;
  Session target(4u << 20);
  put(*target.index, "live", fresh(100, numbered("k", 100)), {"x"});
  const SavedSession before = saved(*target.index).session;
  CHECK(error_of([&] { target.index->replace(session, reserve_for(*target.index, session), owner); }).code == tq::ErrorCode::index_full);
  check_whole_index(target.directory.path());
  same(saved(*target.index).session, before);
}

TEST_CASE("a reservation is cut into several, and what is left over is free") {
  Session session;
  Index& index = *session.index;
  const Reservation whole = reserve(index, 1u << 20);
  const auto parts = index.split(whole, owner, {64, 128, 4096});
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].span.offset == whole.span.offset);
  CHECK(parts[1].span.offset == whole.span.offset + 64);
  CHECK(parts[2].span.nbytes == 4096);
  CHECK(index.stats().pending_bytes == 64 + 128 + 4096);
  check_whole_index(session.directory.path());
  CHECK(error_of([&] { index.split(whole, owner, {64}); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { index.split(parts[0], owner, {64, 64}); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { index.split(parts[1], owner, {63}); }).code == tq::ErrorCode::invalid);
  index.abandon_all(parts, owner);
  CHECK(index.stats().pending_bytes == 0);
  check_whole_index(session.directory.path());
}
