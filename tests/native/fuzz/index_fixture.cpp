#include "fuzz/index_fixture.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/index/armed_request.hpp"
#include "core/index/tombstones.hpp"
#include "core/index/txn.hpp"

namespace tq_fuzz {
namespace {

using tq::FieldKind;
using tq::FieldLayout;
using tq::Index;
using tq::RowsBy;
using tq::RowSelector;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

RowSelector by_key(std::vector<std::string> keys) { return {RowsBy::key, 0, {}, std::move(keys)}; }
RowSelector by_index(std::vector<tq::RowIndex> rows) { return {RowsBy::index, 0, std::move(rows), {}}; }
RowSelector fresh(std::int64_t count) { return {RowsBy::fresh, count, {}, {}}; }

std::string tags(const std::string& value) {
  std::string map{"\x01\0\0\0\x01\0\0\0t", 9};
  map += std::string{static_cast<char>(value.size()), '\0', '\0', '\0'};
  return map + value;
}

constexpr tq::RowIndex far_row = (tq::RowIndex{1} << 50) + 4;  // of another node

// Dense, ragged and column fields in a block of 64 KiB.
std::vector<FieldLayout> layouts(const std::vector<std::string>& names, std::int64_t rows) {
  std::vector<FieldLayout> fields;
  for (std::size_t i = 0; i < names.size(); ++i) {
    FieldLayout field;
    field.name = names[i];
    field.kind = static_cast<FieldKind>(i % 3);
    field.data_offset = 4096 * i;
    field.data_nbytes = 8 * static_cast<std::uint64_t>(rows);
    field.row_nbytes = field.kind == FieldKind::dense ? 8 : 0;
    field.offsets_offset = field.kind == FieldKind::ragged ? 4096 * i + 2048 : 0;
    field.schema = "schema " + std::to_string(i % 2);
    fields.push_back(field);
  }
  return fields;
}

tq::RequestId request_id(char number) {
  tq::RequestId id{};
  id.front() = number;
  return id;
}

// Under a number, as a caller would that may have to ask again.
template <class Change>
void asked(Index& index, char number, Change&& change) {
  const auto request = index.request(request_id(number), "reply");
  tq::index::ArmedRequest::arm(request);
  try {
    change();
  } catch (const tq::Error&) {
    request->close();
    throw;
  }
  request->close();
}

// Moves the first block that lies in memory.
void spill(Index& index) {
  std::vector<Index::PlacedBlock> blocks = index.blocks_in_memory();
  if (blocks.empty()) return;
  blocks.resize(1);
  const auto places = index.reserve_spill({blocks[0].span.nbytes}, living_owner);
  if (!places[0]) return;
  std::vector<Index::BlockMove> moves = {{blocks[0].ref, *places[0], false}};
  index.publish_spilled(moves, index.rows_naming(blocks)[0], living_owner);
}

}  // namespace

void put(Index& index, const std::string& partition, RowSelector rows, std::int64_t count, const std::vector<std::string>& names,
         std::vector<std::string> tag_maps, bool create_rows, std::optional<std::uint64_t> elsewhere) {
  tq::PublishRequest request;
  request.partition = partition;
  request.rows = std::move(rows);
  request.owner = living_owner;
  request.fields = layouts(names, count);
  request.tags = std::move(tag_maps);
  request.create_rows = create_rows;
  request.elsewhere_bytes = elsewhere;
  if (!names.empty()) request.reservation = index.reserve(64u << 10, living_owner);
  if (!names.empty() && !request.reservation) return;  // no room, says the damage
  index.publish(request);
}

IndexFixture::IndexFixture() {
  Index::create(directory(), 4u << 20, payload_nbytes, 1u << 22, payload_nbytes);
  {
    const std::unique_ptr<Index> index = open();
    fill(*index);
  }
  capture();
}

void IndexFixture::add(const std::function<void(Index&)>& more) {
  more(*open());
  capture();
}

void IndexFixture::capture() {
  struct stat status {};
  require(::stat((directory() + "/data.mdb").c_str(), &status) == 0, "the index is a file");
  data_nbytes_ = static_cast<std::uint64_t>(status.st_size);
  data_ = contents(directory() + "/data.mdb");
  data_.resize((data_.find_last_not_of('\0') / 4096 + 1) * 4096);
  lock_ = contents(directory() + "/lock.mdb").substr(0, 4096);
}

void IndexFixture::fill(Index& index) {
  index.grow(payload_nbytes / 2);
  put(index, "train", by_key({"a", "b", "c", "d"}), 4, {"x", "y", "z"}, {tags("1"), tags("2"), {}, tags("3")}, false, 1'000'001);
  put(index, "train", fresh(40), 40, {"x"});
  put(index, "train", by_index({1, 2, 10}), 3, {"y", "w"});
  put(index, "train", fresh(3), 3, {});
  put(index, "val", by_key({"k"}), 1, {"x", "y"});
  put(index, "gone", fresh(5), 5, {"x"});
  const tq::TaskSnapshot snapshot = index.task_snapshot("train", "learn", {"x"});
  index.task_commit("train", "learn", snapshot.task_version, {"x"}, {0, 1, 2, 30}, "state");
  const auto version = index.task_snapshot("train", "learn", {"x"}).task_version;
  index.claim({"train", "learn", version, {"x"}, {5, 6, 7}, "more"}, living_owner, 1'000'000);
  index.claim({"train", "learn", version + 1, {"x"}, {12, 13}, "most"}, dead_owner, 1'000'000);
  index.reserve(5000, dead_owner);
  index.reserve_ahead(256, living_owner, 4);
  const auto given_back = index.reserve(100'000, living_owner);
  index.reserve(64, living_owner);
  index.abandon(*given_back, living_owner);
  put(index, "val", fresh(2), 2, {"x"});
  index.grow_spill(payload_nbytes / 2);
  spill(index);
  index.clear_rows("val", by_index({53, 54, 55, 56}));  // leaves a retired block
  asked(index, 1, [&] { put(index, "val", by_index({far_row, 53, far_row + 1}), 3, {"x"}, {}, true, 70'000); });
  asked(index, 2, [&] { index.merge_tags("val", {far_row}, {tags("2")}); });
  // What somebody left who died in the middle of two clears.
  const auto env = tq::index::Env::open(directory());
  tq::index::WriteTxn txn(*env, gate);
  auto train = tq::index::partition_by_name(txn, "train");
  const std::vector<tq::index::Segment> rows = {{20, 4, 0, 0}};
  tq::index::doom_rows(txn, train->id, rows);
  train->record.doomed_rows += 4;
  train->record.rows -= 4;
  txn.counters.rows -= 4;
  tq::index::store_partition(txn, *train);
  tq::index::doom_partition(txn, *tq::index::partition_by_name(txn, "gone"));
  txn.commit(tq::index::Room::release);
}

void IndexFixture::restore() const {
  for (const auto& [name, bytes, nbytes] : {std::tuple(directory() + "/data.mdb", &data_, data_nbytes_),
                                            std::tuple(directory() + "/lock.mdb", &lock_, std::uint64_t{lock_.size()})}) {
    std::ofstream(name, std::ios::binary | std::ios::trunc) << *bytes;
    if (nbytes > bytes->size()) std::filesystem::resize_file(name, nbytes);
  }
}

void use_index(Index& index, std::uint8_t order) {
  const std::vector<std::string> fields = {"x", "y", "z", "w", "never"};
  std::vector<tq::RowIndex> rows;
  for (tq::RowIndex row = 0; row < 60; ++row) rows.push_back(row);
  constexpr std::size_t most_rows = 1u << 16;
  std::optional<tq::Resolution> source;
  for (const char* name : {"train", "val", "gone", "absent"}) {
    const std::string partition = name;
    typed("resolve by index", [&] { source = index.resolve(partition, by_index(rows), std::nullopt); });
    typed("resolve by key", [&] { index.resolve(partition, by_key({"a", "k", "c", "nobody"}), fields); });
    typed("resolve in a write transaction", [&] { index.resolve(partition, by_index({0, 1, 1, -1}), fields, true, [](const auto&) {}); });
    typed("list_rows", [&] { require(index.list_rows(partition).indexes.size() < most_rows, "no more rows than there were"); });
    typed("describe_rows", [&] { index.describe_rows(partition, rows); });
    typed("find_keys", [&] { index.find_keys(partition, {"a", "b", "k"}, nullptr); });
    typed("production", [&] { require(index.production(partition, fields, std::nullopt).indexes.size() < most_rows, "as many rows"); });
    typed("production of rows", [&] { index.production(partition, fields, rows); });
    typed("field_names", [&] { index.field_names(partition); });
    typed("consumption", [&] { require(index.consumption(partition, "learn").indexes.size() < most_rows, "as many rows"); });
    typed("consumed_rows", [&] { index.consumed_rows(partition, "learn"); });
    typed("unconsumed_rows", [&] { index.unconsumed_rows(partition); });
    typed("find_request", [&] { index.find_request(request_id(1)); });
    typed("task_snapshot", [&] { require(index.task_snapshot(partition, "learn", {"x"}).claimed.size() < most_rows, "as many claims"); });
  }
  typed("partitions", [&] { index.partitions(); });
  typed("stats", [&] { index.stats(); });
  typed("partition_stats", [&] { index.partition_stats(); });
  typed("census", [&] { index.census(); });
  typed("pending_by_owner", [&] { index.pending_by_owner(); });
  typed("free_in_memory", [&] { index.free_in_memory(); });
  typed("retired", [&] { index.block_spans(index.retired()); });
  typed("check", [&] { index.check(); });
  typed("check_readers", [&] { index.check_readers(); });
  std::optional<Index::Snapshot> saved;
  std::vector<tq::BlockRef> blocks;
  typed("save", [&] { saved = index.save([&](const auto& published) { blocks = published; return true; }); });
  typed("describe_blocks", [&] { index.describe_blocks(blocks); });

  const std::vector<std::function<void()>> writers = {
      [&] { typed("put", [&] { put(index, "train", fresh(2), 2, {"x", "new"}); }); },
      [&] { typed("overwrite", [&] { put(index, "train", by_index({0, 5, 39}), 3, {"x", "y"}, {tags("9"), tags("8"), tags("7")}); }); },
      [&] { typed("put by key", [&] { put(index, "train", by_key({"a", "fresh"}), 2, {"x"}, {tags("6"), {}}); }); },
      [&] { typed("put under given indexes", [&] { put(index, "train", by_index({far_row, 0, far_row + 9}), 3, {"x"}, {}, true); }, /*may_be_invalid=*/true); },
      [&] { typed("asked for again", [&] { asked(index, 2, [&] { index.clear_rows("val", by_index({far_row})); }); }); },
      [&] { typed("asked for", [&] { asked(index, 3, [&] { put(index, "val", fresh(1), 1, {"x"}); }); }); },
      [&] { typed("drop_requests", [&] { index.drop_requests(); }); },
      [&] { typed("merge_tags", [&] { index.merge_tags("train", {0, 2}, {tags("5"), tags("4")}); }); },
      [&] { typed("reserve", [&] { index.reserve(1u << 20, living_owner); }); },
      [&] { typed("reserve_ahead", [&] { index.reserve_ahead(512, living_owner, 8); }); },
      [&] { typed("abandon_owner", [&] { index.abandon_owner(dead_owner); }); },
      [&] { typed("finish_clears", [&] { index.finish_clears(); }); },
      [&] { typed("free_retired", [&] { index.free_retired(index.retired()); }); },
      [&] { typed("drop_claims", [&] { index.drop_claims(living_owner); }); },
      [&] { typed("task_commit", [&] {
          const auto snapshot = index.task_snapshot("train", "learn", {"x"});
          index.task_commit("train", "learn", snapshot.task_version, {"x"}, {3, 4}, "s");
        }); },
      [&] { typed("claims", [&] {
          const auto snapshot = index.task_snapshot("train", "learn", {"x"});
          const auto grant = index.claim({"train", "learn", snapshot.task_version, {"x"}, {14}, "s"}, living_owner, 1000);
          if (grant) index.extend_claim("train", "learn", grant->fencing, living_owner, 1000);
          if (grant) index.finish_claim("train", "learn", grant->fencing, true);
        }); },
      [&] { typed("task_reset", [&] { index.task_reset("train", std::nullopt); }); },
      [&] { typed("clear_rows", [&] { index.clear_rows("train", by_index(rows)); }); },
      [&] { typed("clear_rows by key", [&] { index.clear_rows("train", by_key({"a", "d"})); }); },
      [&] { typed("clear_partition", [&] { index.clear_partition("train"); }); },
      [&] { typed("move", [&] {
          source = index.resolve("train", by_index({0, 1, 2, 3}), std::vector<std::string>{"x"});
          const auto reservation = index.reserve(64u << 10, living_owner);
          if (reservation) index.publish_moved(*source, *reservation, living_owner, layouts({"x"}, 4));
        }); },
      [&] { typed("replace", [&] {
          if (!saved) return;
          std::vector<tq::Reservation> reservations;
          for (const tq::SavedBlock& block : saved->session.blocks) {
            const auto reservation = index.reserve(block.nbytes, living_owner);
            if (!reservation) return;
            reservations.push_back(*reservation);
          }
          index.replace(saved->session, reservations, living_owner);
        }, /*may_be_invalid=*/true); },
      [&] { typed("grow", [&] { index.grow(payload_nbytes); }, /*may_be_invalid=*/true); },
      [&] { typed("spill", [&] { spill(index); }); },
      [&] { typed("grow_spill", [&] { index.grow_spill(payload_nbytes); }, /*may_be_invalid=*/true); },
  };
  for (std::size_t i = 0; i < writers.size(); ++i) writers[(i * (1 + 2 * (order % 7u)) + order) % writers.size()]();
}

}  // namespace tq_fuzz
