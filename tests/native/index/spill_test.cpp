// Places in the spill file, and what happens to cells when their block moves there. The model test has the random half.
#include "core/pause.hpp"
#include "index/support.hpp"

using namespace tq_test;

namespace {

constexpr std::uint64_t spill_bytes = 1u << 20;

Session session_with_spill() { return Session(16u << 20, 1u << 20, 1u << 22, spill_bytes); }

std::vector<Index::RowStretch> all_rows(Index& index, const std::vector<Index::PlacedBlock>& blocks) {
  std::vector<Index::RowStretch> all;
  for (const auto& rows : index.rows_naming(blocks)) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::vector<Index::BlockMove> places_for(Index& index, const std::vector<Index::PlacedBlock>& blocks) {
  std::vector<Index::BlockMove> moves;
  for (const Index::PlacedBlock& block : blocks) {
    moves.push_back({block.ref, *index.reserve_spill({block.span.nbytes}, owner).front()});
  }
  return moves;
}

}  // namespace

TEST_CASE("the spill file has extents of its own: neither region takes from the other or merges with it") {
  Session session = session_with_spill();
  Index& index = *session.index;
  const auto places = index.reserve_spill({spill_bytes / 2, spill_bytes / 2, 64}, owner);
  CHECK(places[0]->span == Span{tq::spill_base, spill_bytes / 2});
  CHECK(places[1]->span == Span{tq::spill_base + spill_bytes / 2, spill_bytes / 2});
  CHECK_FALSE(places[2]);
  CHECK(index.stats().spill_pending_bytes == spill_bytes);
  CHECK(index.stats().free_bytes == 1u << 20);
  CHECK(index.reserve(1u << 20, owner)->span == Span{0, 1u << 20});
  CHECK_FALSE(index.reserve(64, owner));
  check_whole_index(session.directory.path());
  CHECK(index.abandon_owner(owner).size() == 3);
  CHECK(index.stats().spill_free_bytes == spill_bytes);
  CHECK(index.stats().spill_largest_free == spill_bytes);
  check_whole_index(session.directory.path());
  CHECK(error_of([&] { index.grow_spill(2 * spill_bytes); }).code == tq::ErrorCode::invalid);
}

TEST_CASE("a block moves with all its cells, and its old place is retired") {
  Session session = session_with_spill();
  Index& index = *session.index;
  BlockRef block;
  put(index, "p", fresh(100), {"a", "b"}, {}, &block);
  put(index, "p", by_index(range(40, 10)), {"b"});  // splits the run, and leaves the block less than all cells
  const std::uint64_t used = index.stats().used_bytes;
  const std::uint64_t live = index.stats().live_bytes;
  const std::uint64_t version = index.partition_version(*index.find_partition("p"));
  const auto blocks = index.blocks_in_memory();
  REQUIRE(blocks.size() == 2);
  REQUIRE(blocks[0].ref == block);
  auto moves = places_for(index, {blocks[0]});
  index.publish_spilled(moves, all_rows(index, {blocks[0]}), owner);
  CHECK(moves[0].moved);
  const tq::IndexStats stats = index.stats();
  CHECK(stats.used_bytes + stats.spill_used_bytes == used);
  CHECK(stats.live_bytes + stats.spill_live_bytes == live);
  CHECK(stats.spill_used_bytes == blocks[0].span.nbytes);
  CHECK(stats.retired_bytes == blocks[0].span.nbytes);
  CHECK(index.partition_version(*index.find_partition("p")) == version);  // nothing that a reader could see has changed
  const Resolution answer = index.resolve("p", by_index({0, 45, 99}), std::vector<std::string>{"a", "b"});
  CHECK(cell_of(answer, 0, 1) == Cell{moves[0].to.block.word, 45});
  CHECK(cell_of(answer, 1, 1).block == blocks[1].ref.word);
  CHECK(cell_of(answer, 1, 2) == Cell{moves[0].to.block.word, 99});
  check_whole_index(session.directory.path());
  CHECK(index.free_retired({block}) == blocks[0].span.nbytes);
  CHECK(index.clear_partition("p").rows == 100);
  CHECK(index.stats().spill_retired_bytes == blocks[0].span.nbytes);
  index.free_retired(index.retired());
  CHECK(index.stats().spill_free_bytes == spill_bytes);
  check_whole_index(session.directory.path());
}

TEST_CASE("a block that was cleared meanwhile stays gone, and its place is free again") {
  Session session = session_with_spill();
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a"});
  put(index, "p", fresh(10), {"a"});
  const auto blocks = index.blocks_in_memory();
  auto moves = places_for(index, blocks);
  const auto rows = all_rows(index, blocks);
  index.clear_rows("p", by_index(range(0, 10)));
  index.publish_spilled(moves, rows, owner);
  CHECK_FALSE(moves[0].moved);
  CHECK(moves[1].moved);
  CHECK(index.stats().spill_pending_bytes == 0);
  CHECK(index.stats().spill_used_bytes == blocks[1].span.nbytes);
  check_whole_index(session.directory.path());
  // The same move again: both are gone by now.
  moves = places_for(index, blocks);
  index.publish_spilled(moves, rows, owner);
  CHECK_FALSE(moves[0].moved);
  CHECK_FALSE(moves[1].moved);
  check_whole_index(session.directory.path());
}

TEST_CASE("rows that were not found beforehand: nothing is published") {
  Session session = session_with_spill();
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a"});
  const auto blocks = index.blocks_in_memory();
  auto moves = places_for(index, blocks);
  CHECK(error_of([&] { index.publish_spilled(moves, {}, owner); }).code == tq::ErrorCode::corrupt);
  CHECK(index.stats().spill_used_bytes == 0);
  CHECK(index.stats().spill_pending_bytes == blocks[0].span.nbytes);
  index.abandon_owner(owner);
  CHECK(error_of([&] { index.publish_spilled(moves, all_rows(index, blocks), owner); }).code == tq::ErrorCode::invalid);
  check_whole_index(session.directory.path());
}

TEST_CASE("an interrupted publication leaves no trace") {
  Session session = session_with_spill();
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a"});
  const auto blocks = index.blocks_in_memory();
  auto moves = places_for(index, blocks);
  tq::arm_pause("index.spill.before_commit", tq::PauseAction::fail);
  CHECK_THROWS(index.publish_spilled(moves, all_rows(index, blocks), owner));
  tq::resume_pause("index.spill.before_commit");
  check_whole_index(session.directory.path());
  CHECK(index.stats().spill_used_bytes == 0);
  index.publish_spilled(moves, all_rows(index, blocks), owner);
  CHECK(moves[0].moved);
  check_whole_index(session.directory.path());
}
