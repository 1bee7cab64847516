#include "index/support.hpp"

using namespace tq_test;

TEST_CASE("rows that lie one after another in a block are one piece, in the order asked") {
  Session session;
  Index& index = *session.index;
  BlockRef block;
  put(index, "p", fresh(100), {"a", "b"}, {}, &block);
  const Resolution all = index.resolve("p", by_index(range(0, 100)), std::nullopt);
  CHECK(all.fields == std::vector<std::string>{"a", "b"});
  REQUIRE(all.piece_lists.size() == 1);  // both fields share it
  REQUIRE(all.piece_lists[0].size() == 1);
  CHECK(all.piece_lists[0][0].count == 100);
  REQUIRE(all.blocks.size() == 1);
  CHECK(all.blocks[0].ref == block);
  CHECK(all.blocks[0].n_rows == 100);

  const Resolution scattered = index.resolve("p", by_index({50, 51, 52, 10, 9, 8, 8}), std::vector<std::string>{"b"});
  const auto& pieces = scattered.piece_lists[scattered.field_pieces[0]];
  REQUIRE(pieces.size() == 5);
  CHECK(pieces[0].count == 3);
  CHECK(pieces[0].block_row == 50);
  CHECK(pieces[4].first == 6);
  CHECK(pieces[4].block_row == 8);
}

TEST_CASE("pieces join over runs, because an overwritten field splits those of the others in nothing but runs") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a", "b"});
  put(index, "p", by_index({4, 5}), {"b"});
  const Resolution answer = index.resolve("p", by_index(range(0, 10)), std::vector<std::string>{"a", "b", "c"});
  CHECK(answer.piece_lists[answer.field_pieces[0]].size() == 1);
  CHECK(answer.piece_lists[answer.field_pieces[1]].size() == 3);
  CHECK(answer.piece_lists[answer.field_pieces[2]].empty());
  CHECK(answer.blocks.size() == 2);
  CHECK(answer.layouts[0][0] != nullptr);
  CHECK(answer.layouts[0][1] == nullptr);  // the second block has no a
  CHECK(answer.layouts[2][0] == nullptr);
}

TEST_CASE("a field missing on some rows covers the others") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(6), {"a"});
  put(index, "p", by_index({1, 2, 5}), {"b"});
  const Resolution answer = index.resolve("p", by_index(range(0, 6)), std::nullopt);
  CHECK(answer.fields == std::vector<std::string>{"a", "b"});
  CHECK(cell_of(answer, 1, 0).block == 0);
  CHECK(cell_of(answer, 1, 2).row == 1);
  CHECK(cell_of(answer, 1, 5).row == 2);
  const Resolution bare = index.resolve("p", by_index(put(index, "p", fresh(3), {}).indexes), std::nullopt);
  CHECK(bare.gone.empty());
  CHECK(bare.fields.empty());
}

TEST_CASE("what is not there is said: partitions, rows, keys") {
  Session session;
  Index& index = *session.index;
  put(index, "p", by_key({"a", "b", "c"}), {"x"});
  index.clear_rows("p", by_key({"b"}));
  const Resolution keys = index.resolve("p", by_key({"c", "b", "nobody", "a"}), std::vector<std::string>{"x"});
  CHECK(keys.indexes == std::vector<RowIndex>{2, -1, -1, 0});
  CHECK(keys.gone == std::vector<std::int64_t>{1, 2});
  const Resolution rows = index.resolve("p", by_index({1, 2, -7, 1'000'000, 0, 1}), std::nullopt);
  CHECK(rows.gone == std::vector<std::int64_t>{0, 2, 3, 5});
  const Resolution nowhere = index.resolve("q", by_key({"a"}), std::vector<std::string>{"x", "y"});
  CHECK_FALSE(nowhere.partition_found);
  CHECK(nowhere.gone == std::vector<std::int64_t>{0});
  CHECK(nowhere.fields.size() == 2);
  CHECK(nowhere.piece_lists[nowhere.field_pieces[1]].empty());
  const Resolution nothing = index.resolve("p", by_index({}), std::vector<std::string>{"x"});
  CHECK(nothing.partition_found);
  CHECK(nothing.gone.empty());
  CHECK(error_of([&] { index.resolve("p", fresh(1), std::nullopt); }).code == tq::ErrorCode::invalid);
}

TEST_CASE("resolving inside the write transaction stores leases before anybody can retire, and is left when they fail") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(2), {"a"});
  bool inside = false;
  index.resolve("p", by_index({0, 1}), std::nullopt, true, [&](const Resolution& answer) {
    inside = session.gate.entered.load() == session.gate.left.load() + 1;
    CHECK(answer.blocks.size() == 1);
  });
  CHECK(inside);
  CHECK_THROWS_AS(index.resolve("p", by_index({0}), std::nullopt, true, [](const Resolution&) { throw 5; }), int);
  CHECK(session.gate.entered.load() == session.gate.left.load());
  put(index, "p", fresh(1), {"a"});  // the lock is free
}

TEST_CASE("a field's layout comes back as it was put") {
  Session session;
  Index& index = *session.index;
  FieldLayout ragged;
  ragged.name = std::string("n\0me", 4);
  ragged.kind = tq::FieldKind::ragged;
  ragged.data_offset = 4096;
  ragged.data_nbytes = 1000;
  ragged.offsets_offset = 64;
  ragged.schema = std::string("\0schema\xff", 8);
  FieldLayout column = ragged;
  column.name = "a column";
  column.kind = tq::FieldKind::column;
  column.schema = std::string(3'000, 's');
  const Reservation reservation = reserve(index, 100'000);
  index.publish(request_of("p", fresh(5), reservation, {ragged, column}));
  for (int round = 0; round < 2; ++round) {  // parsed, then from the cache
    const Resolution answer = index.resolve("p", by_index({2}), std::vector<std::string>{ragged.name, column.name});
    const FieldLayout& got = *answer.layouts[0][0];
    CHECK(got.name == ragged.name);
    CHECK(got.kind == ragged.kind);
    CHECK(got.data_offset == ragged.data_offset);
    CHECK(got.data_nbytes == ragged.data_nbytes);
    CHECK(got.row_nbytes == ragged.row_nbytes);
    CHECK(got.offsets_offset == ragged.offsets_offset);
    CHECK(got.schema == ragged.schema);
    CHECK(answer.layouts[1][0]->schema == column.schema);
    CHECK(answer.blocks[0].span == reservation.span);
  }
}
