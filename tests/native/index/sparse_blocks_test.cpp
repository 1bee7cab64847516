#include <algorithm>

#include "core/index/space.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::SparseBlocks;

namespace {

// Rows that name fields of the block, as (first, count).
std::vector<std::pair<RowIndex, std::int64_t>> rows_of(const SparseBlocks& found, BlockRef block) {
  std::vector<std::pair<RowIndex, std::int64_t>> rows;
  for (const SparseBlocks::Range& range : found.ranges) {
    const SparseBlocks::Shape& shape = found.shapes[static_cast<std::size_t>(range.shape)];
    if (found.blocks[static_cast<std::size_t>(shape.block)].ref == block) rows.emplace_back(range.row, range.count);
  }
  return rows;
}

}  // namespace

TEST_CASE("the headroom is handed out from front to back, to nobody else, and anew once it is empty") {
  Session session(4u << 20, 1u << 20, 1u << 22, 0, 64u << 10);
  Index& index = *session.index;
  reserve(index, 1u << 20);
  CHECK_FALSE(index.reserve(1, owner));
  const auto first = index.reserve_headroom(5000, owner);
  REQUIRE(first.has_value());
  CHECK(first->span == Span{1u << 20, 8192});
  const auto second = index.reserve_headroom(56u << 10, owner);
  REQUIRE(second.has_value());
  CHECK(second->span.offset == (1u << 20) + 8192);
  CHECK_FALSE(index.reserve_headroom(1, owner));
  CHECK_FALSE(index.reserve_headroom(~std::uint64_t{0}, owner));
  CHECK(index.stats().headroom_taken == 64u << 10);
  check_whole_index(session.directory.path());
  index.abandon(*first, owner);
  CHECK_FALSE(index.reserve_headroom(1, owner));  // not before the rest is back
  CHECK(index.stats().headroom_taken == 56u << 10);
  CHECK(index.stats().free_bytes == 0);
  // As of anybody who died.
  CHECK(index.abandon_owner(owner).size() == 2);
  CHECK(index.stats().headroom_taken == 0);
  CHECK(index.reserve_headroom(64u << 10, owner).has_value());
  CHECK(index.stats().free_bytes == 1u << 20);
  check_whole_index(session.directory.path());
}

TEST_CASE("nothing is found while every cell lives") {
  Session session;
  put(*session.index, "p", fresh(100), {"a", "b"});
  put(*session.index, "p", fresh(100), {"a"});
  const SparseBlocks found = session.index->sparse_blocks(BlockRef{});
  CHECK(found.blocks.empty());
  CHECK_FALSE(found.next);
}

TEST_CASE("blocks that lost rows or fields are found with what is left, by kind of cell") {
  Session session;
  Index& index = *session.index;
  BlockRef first, second, third, whole;
  const auto rows = put(index, "p", fresh(10), {"a", "b"}, {}, &first).indexes;
  const auto more = put(index, "p", fresh(10), {"a", "b"}, {}, &second).indexes;
  put(index, "p", by_index({rows[8], rows[9], more[0]}), {"b"}, {}, &whole);
  const auto other = put(index, "q", fresh(4), {"a", "b"}, {}, &third).indexes;
  index.clear_rows("p", by_index({rows[0], rows[1], rows[2], rows[5]}));
  index.clear_rows("q", by_index({other[1]}));
  const SparseBlocks found = index.sparse_blocks(BlockRef{});
  CHECK(found.blocks.size() == 3);
  CHECK(rows_of(found, first) == std::vector<std::pair<RowIndex, std::int64_t>>{{rows[3], 2}, {rows[6], 2}, {rows[8], 2}});
  CHECK(rows_of(found, second) == std::vector<std::pair<RowIndex, std::int64_t>>{{more[0], 1}, {more[1], 9}});
  CHECK(rows_of(found, third) == std::vector<std::pair<RowIndex, std::int64_t>>{{other[0], 1}, {other[2], 2}});
  CHECK(rows_of(found, whole).empty());
  // Both fields of "p", "a" alone of "p", both of "q".
  REQUIRE(found.groups.size() == 3);
  CHECK(std::count_if(found.groups.begin(), found.groups.end(), [](const auto& group) { return group.partition == "p"; }) == 2);
  CHECK(std::count_if(found.groups.begin(), found.groups.end(), [](const auto& group) { return group.fields.size() == 1; }) == 1);
  // Behind the last one nothing is left to look at.
  CHECK(index.sparse_blocks(std::max({first, second, third}, [](auto a, auto b) { return a.word < b.word; })).blocks.empty());
}

TEST_CASE("fields of another type do not go into one block") {
  Session session;
  Index& index = *session.index;
  for (const char* schema : {"int", "float", "int"}) {
    std::vector<FieldLayout> fields = dense_fields({"a"}, 4);
    fields[0].schema = schema;
    const Reservation reservation = reserve(index, nbytes_of(fields));
    const auto rows = index.publish(request_of("p", fresh(4), reservation, fields)).indexes;
    index.clear_rows("p", by_index({rows[1]}));
  }
  const SparseBlocks found = index.sparse_blocks(BlockRef{});
  CHECK(found.blocks.size() == 3);
  CHECK(found.groups.size() == 2);
}

TEST_CASE("doomed rows and cleared partitions name nothing, and a block of the headroom is found though all of it lives") {
  Session session(16u << 20, 1u << 20, 1u << 22, 0, 64u << 10);
  Index& index = *session.index;
  const auto reservation = index.reserve_headroom(1000, owner);
  REQUIRE(reservation.has_value());
  index.publish(request_of("p", fresh(4), *reservation, dense_fields({"a"}, 4)));
  const SparseBlocks found = index.sparse_blocks(BlockRef{});
  REQUIRE(found.blocks.size() == 1);
  CHECK(found.blocks[0].headroom);
  CHECK(rows_of(found, reservation->block).size() == 1);
  index.clear_partition("p");
  CHECK(index.sparse_blocks(BlockRef{}).blocks.empty());
  check_whole_index(session.directory.path());
}
