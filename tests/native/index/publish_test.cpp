#include "index/support.hpp"

#include "core/index/impl.hpp"

using namespace tq_test;

namespace {

std::size_t n_runs(const std::string& directory) {
  const auto env = tq::index::Env::open(directory);
  const tq::index::ReadTxn txn(*env);
  tq::index::Cursor cursor(txn, tq::index::Table::runs);
  std::size_t n = 0;
  for (bool found = cursor.seek(tq::index::Key(tq::index::Table::runs)); found; found = cursor.next()) ++n;
  return n;
}

}  // namespace

TEST_CASE("a put of many rows and fields is one run; overwriting a row splits it once and for all") {
  Session session;
  Index& index = *session.index;
  const auto fields = numbered("field", 20);
  put(index, "p", fresh(512), fields);
  CHECK(n_runs(session.directory.path()) == 1);
  for (int i = 0; i < 512; ++i) put(index, "p", by_index({100}), {"field3"});
  CHECK(n_runs(session.directory.path()) == 3);
  // Every row on its own, as single rollouts write; then all together again.
  for (RowIndex row = 0; row < 512; ++row) put(index, "p", by_index({row}), {"field3"});
  CHECK(n_runs(session.directory.path()) == 512);
  const PublishResult whole = put(index, "p", by_index(range(0, 512)), {"field3"});
  CHECK(n_runs(session.directory.path()) == 1);
  CHECK(whole.retired.size() == 512);
  check_whole_index(session.directory.path());
}

TEST_CASE("a schema that many fields of a put share is stored once, and comes back for each") {
  Session session;
  Index& index = *session.index;
  const auto names = numbered("field", 40);
  const auto record_nbytes = [&](int n_schemas, const std::string& partition) {
    std::vector<FieldLayout> fields = dense_fields(names, 1);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto kind = static_cast<char>('a' + static_cast<int>(i) % n_schemas);
      fields[i].schema = std::string(100, kind) + std::to_string(static_cast<int>(i) % n_schemas);
    }
    const Reservation place = reserve(index, nbytes_of(fields));
    index.publish(request_of(partition, fresh(1), place, fields));
    const Resolution answer = index.resolve(partition, by_index({index.stats().rows - 1}), std::nullopt);
    REQUIRE(answer.fields.size() == names.size());
    REQUIRE(answer.blocks.size() == 1);
    for (std::size_t i = 0; i < answer.fields.size(); ++i) {
      const auto found = answer.layouts[i][0];
      REQUIRE(found != nullptr);
      const auto at = std::find(names.begin(), names.end(), answer.fields[i]) - names.begin();
      CHECK(found->schema == fields[static_cast<std::size_t>(at)].schema);
    }
    const auto env = tq::index::Env::open(session.directory.path());
    const tq::index::ReadTxn txn(*env);
    return txn.get(tq::index::Key(tq::index::Table::blocks).u64(place.block.word))->size();
  };
  CHECK(record_nbytes(2, "two") < 40 * 12 + 300);
  CHECK(record_nbytes(40, "all different") > 40 * 100);
  check_whole_index(session.directory.path());
}

TEST_CASE("the block is retired by the put that takes its last cell, and freed once") {
  Session session;
  Index& index = *session.index;
  BlockRef first;
  put(index, "p", fresh(4), {"a", "b"}, {}, &first);
  const std::uint64_t used = index.stats().used_bytes;
  CHECK(put(index, "p", by_index({0, 1, 2, 3}), {"a"}).retired.empty());
  CHECK(index.stats().live_bytes < index.stats().used_bytes);
  CHECK(put(index, "p", by_index({3, 0, 1}), {"b"}).retired.empty());
  const PublishResult last = put(index, "p", by_index({2}), {"b"});
  CHECK(last.retired == std::vector<BlockRef>{first});
  CHECK(index.retired() == std::vector<BlockRef>{first});
  CHECK(index.block_spans({first})[0].nbytes == used);
  CHECK(index.stats().retired_bytes == used);
  CHECK(index.free_retired({first}) == used);
  CHECK(index.free_retired({first}) == 0);
  CHECK(index.block_spans({first})[0] == Span{});
  CHECK(index.stats().live_bytes == index.stats().used_bytes);
  check_whole_index(session.directory.path());
}

TEST_CASE("a put on rows that are gone changes nothing and names them") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a"}, std::vector<std::string>(10, tag_map({{"t", "1"}})));
  index.clear_rows("p", by_index({4, 5}));
  const auto before = index.stats();
  const tq::Error error = error_of([&] { put(index, "p", by_index({3, 5, 4, 20, -1, 0, 6}), {"b"}); });
  CHECK(error.code == tq::ErrorCode::stale_rows);
  CHECK(error.rows == std::vector<RowIndex>{-1, 4, 5, 20});
  const std::vector<RowIndex> wild = {INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX};
  CHECK(error_of([&] { put(index, "p", by_index(wild), {"b"}); }).rows == wild);
  CHECK(index.resolve("p", by_index(wild), std::nullopt).gone == std::vector<std::int64_t>{0, 1, 2, 3});
  CHECK(index.clear_rows("p", by_index(wild)).rows == 0);
  CHECK(index.production("p", {"a"}, wild).ready == std::vector<std::uint8_t>(4));
  CHECK(index.describe_rows("p", wild).tags == std::vector<std::string>(4));
  CHECK_FALSE(index.task_commit("p", "t", index.task_snapshot("p", "t", {"a"}).task_version, {"a"}, wild, ""));
  CHECK(error_of([&] { put(index, "no such partition", by_index({0}), {"b"}); }).code == tq::ErrorCode::stale_rows);
  CHECK(error_of([&] { put(index, "p", by_index({1, 1}), {"b"}); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { index.merge_tags("p", {3, 4}, {tag_map({{"t", "2"}}), ""}); }).rows == std::vector<RowIndex>{4});
  CHECK(index.describe_rows("p", {3}).tags[0] == tag_map({{"t", "1"}}));
  CHECK(index.partitions() == std::vector<std::string>{"p"});
  CHECK(index.stats().puts == before.puts);
  CHECK(index.stats().used_bytes == before.used_bytes);
  CHECK(index.field_names("p") == std::vector<std::string>{"a"});
  check_whole_index(session.directory.path());
}

TEST_CASE("requests that do not fit together are refused") {
  Session session;
  Index& index = *session.index;
  const auto refused = [&](const PublishRequest& request) {
    const tq::Error error = error_of([&] { index.publish(request); });
    CHECK(error.code == tq::ErrorCode::invalid);
    return std::string(error.what());
  };
  const auto one_field = [](std::uint64_t rows) { return dense_fields({"a"}, static_cast<std::int64_t>(rows)); };
  refused(request_of("", fresh(1)));
  refused(request_of(std::string(401, 'p'), fresh(1)));
  refused(request_of("p", fresh(-1)));
  refused(request_of("p", fresh(2, {"a"})));
  refused(request_of("p", fresh(2), std::nullopt, {}, {"", "", ""}));
  refused(request_of("p", fresh(2), std::nullopt, one_field(2)));
  refused(request_of("p", fresh(2), std::nullopt, {}, {"junk", ""}));
  const Reservation held = reserve(index, 64);
  refused(request_of("p", fresh(2), held));
  refused(request_of("p", fresh(9), held, one_field(9)));
  refused(request_of("p", fresh(2), held, dense_fields({"a", "a"}, 2)));
  refused(request_of("p", fresh(2), held, dense_fields({""}, 2)));
  auto beyond = one_field(2);
  beyond[0].data_offset = ~std::uint64_t{0} - 8;
  refused(request_of("p", fresh(2), held, beyond));
  auto ragged = one_field(2);
  ragged[0].kind = tq::FieldKind::ragged;
  ragged[0].offsets_offset = 48;
  CHECK(refused(request_of("p", fresh(2), held, ragged)).find("offsets") != std::string::npos);
  ragged[0].offsets_offset = 40;
  CHECK(index.publish(request_of("p", fresh(2), held, ragged)).indexes == range(0, 2));
  // Published once; the reservation is used up.
  refused(request_of("p", fresh(2), held, ragged));
  check_whole_index(session.directory.path());
}

TEST_CASE("tags merge, and rows of one call keep the order of the call") {
  Session session;
  Index& index = *session.index;
  put(index, "p", by_key({"b", "a"}), {"x"}, {tag_map({{"t", "1"}}), ""});
  const PublishResult again = put(index, "p", by_key({"a", "c", "b"}), {}, {tag_map({{"u", "2"}}), "", tag_map({{"t", "3"}, {"v", ""}})});
  CHECK(again.indexes == std::vector<RowIndex>{1, 2, 0});
  const tq::RowListing listing = index.list_rows("p");
  CHECK(listing.indexes == range(0, 3));
  CHECK(listing.keys == std::vector<std::optional<std::string>>{"b", "a", "c"});
  CHECK(listing.tags == std::vector<std::string>{tag_map({{"t", "3"}, {"v", ""}}), tag_map({{"u", "2"}}), ""});
  // A row listed by its tags alone holds no data.
  CHECK(index.resolve("p", by_key({"c"}), std::nullopt).fields.empty());
  CHECK(index.merge_tags("p", {2, 2}, {tag_map({{"t", "x"}, {"w", "1"}}), tag_map({{"t", "y"}})}) == again.partition_version + 1);
  CHECK(index.describe_rows("p", {2, 7, 0}).tags ==
        std::vector<std::string>{tag_map({{"t", "y"}, {"w", "1"}}), "", tag_map({{"t", "3"}, {"v", ""}})});
  const auto keys = index.describe_rows("p", {2, 7, 0}).keys;
  CHECK(keys == std::vector<std::optional<std::string>>{"c", std::nullopt, "b"});
}

TEST_CASE("indexes are unique in the session and never used again; a partition's id dies with it") {
  Session session;
  Index& index = *session.index;
  const PublishResult p = put(index, "p", fresh(3), {"a"});
  CHECK(put(index, "q", fresh(3), {"a"}).indexes == range(3, 3));
  index.clear_rows("p", by_index({2}));
  index.clear_partition("p");
  CHECK(index.partition_version(p.partition_id) == 0);
  CHECK_FALSE(index.find_partition("p"));
  const PublishResult again = put(index, "p", fresh(1), {"a"});
  CHECK(again.indexes == range(6, 1));
  CHECK(again.partition_id != p.partition_id);
  CHECK(index.find_partition("p") == again.partition_id);
  const std::uint64_t version = index.partition_version(again.partition_id);
  put(index, "p", by_index({6}), {"b"});
  CHECK(index.partition_version(again.partition_id) == version + 1);
  CHECK(index.ensure_partition("p") == again.partition_id);
  CHECK(index.ensure_partition("r") > again.partition_id);
}

TEST_CASE("a move changes only cells that are still what was read") {
  Session session;
  Index& index = *session.index;
  for (int i = 0; i < 4; ++i) put(index, "p", fresh(1), {"a", "b"});
  const Resolution source = index.resolve("p", by_index({3, 1, 0, 2}), std::vector<std::string>{"a", "b"});
  BlockRef newer;
  put(index, "p", by_index({1}), {"a"}, {}, &newer);
  index.clear_rows("p", by_index({2}));
  const auto fields = dense_fields({"b", "a"}, 4);
  const Reservation reservation = reserve(index, nbytes_of(fields));
  const Index::MoveResult moved = index.publish_moved(source, reservation, owner, fields);
  CHECK(moved.moved == 5);
  const Resolution now = index.resolve("p", by_index({3, 1, 0}), std::vector<std::string>{"a", "b"});
  CHECK(cell_of(now, 0, 0) == Cell{reservation.block.word, 0});
  CHECK(cell_of(now, 0, 1) == Cell{newer.word, 0});
  CHECK(cell_of(now, 1, 1) == Cell{reservation.block.word, 1});
  CHECK(cell_of(now, 0, 2) == Cell{reservation.block.word, 2});
  check_whole_index(session.directory.path());
  // Everything changed since: nothing moves, and the space comes back.
  const Reservation late = reserve(index, nbytes_of(fields));
  const auto before = index.stats();
  CHECK(index.publish_moved(source, late, owner, fields).moved == 0);
  CHECK(index.stats().free_bytes == before.free_bytes + late.span.nbytes);
  index.clear_partition("p");
  const Reservation later = reserve(index, nbytes_of(fields));
  CHECK(index.publish_moved(now, later, owner, fields).moved == 0);
  check_whole_index(session.directory.path());
}
