#include "index/support.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/index/check.hpp"

namespace tq_test {

TempDirectory::TempDirectory() {
  // On tmpfs where there is one: that is where an index lives.
  struct stat status {};
  std::string pattern = std::string(stat("/dev/shm", &status) == 0 ? "/dev/shm" : "/tmp") + "/tq-test-index-XXXXXX";
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;  // a test may have removed it
  std::filesystem::remove_all(path_, ignored);
}

Session::Session(std::uint64_t index_bytes, std::uint64_t backed_bytes, std::uint32_t max_slots, std::uint64_t spill_bytes,
                 std::uint64_t headroom_bytes) {
  Index::create(directory.path(), index_bytes, backed_bytes, max_slots, spill_bytes, {backed_bytes, headroom_bytes});
  index = std::make_unique<Index>(directory.path(), gate, judge);
  index->grow(backed_bytes);
  index->grow_spill(spill_bytes);
}

RowSelector fresh(std::int64_t count, std::vector<std::string> keys) { return {RowsBy::fresh, count, {}, std::move(keys)}; }
RowSelector by_index(std::vector<RowIndex> rows) { return {RowsBy::index, 0, std::move(rows), {}}; }
RowSelector by_key(std::vector<std::string> keys) { return {RowsBy::key, 0, {}, std::move(keys)}; }

std::vector<RowIndex> range(RowIndex first, std::int64_t count) {
  std::vector<RowIndex> rows;
  for (std::int64_t i = 0; i < count; ++i) rows.push_back(first + i);
  return rows;
}

std::vector<std::string> numbered(const std::string& prefix, std::int64_t count, std::int64_t first) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(prefix + std::to_string(first + i));
  return names;
}

std::vector<FieldLayout> dense_fields(const std::vector<std::string>& names, std::int64_t n_rows) {
  std::vector<FieldLayout> fields;
  std::uint64_t at = 0;
  for (const std::string& name : names) {
    FieldLayout field;
    field.name = name;
    field.data_offset = at;
    field.row_nbytes = 8;
    field.data_nbytes = 8 * static_cast<std::uint64_t>(n_rows);
    field.schema = "schema of " + name;
    at += field.data_nbytes;
    fields.push_back(field);
  }
  return fields;
}

std::uint64_t nbytes_of(const std::vector<FieldLayout>& fields) {
  return fields.empty() ? 0 : fields.back().data_offset + fields.back().data_nbytes;
}

Reservation reserve(Index& index, std::uint64_t nbytes) {
  const auto reservation = index.reserve(nbytes, owner);
  REQUIRE(reservation.has_value());
  return *reservation;
}

PublishRequest request_of(const std::string& partition, RowSelector rows, std::optional<Reservation> reservation,
                          std::vector<FieldLayout> fields, std::vector<std::string> tags) {
  PublishRequest request;
  request.partition = partition;
  request.rows = std::move(rows);
  request.owner = owner;
  request.reservation = reservation;
  request.fields = std::move(fields);
  request.tags = std::move(tags);
  return request;
}

PublishResult put(Index& index, const std::string& partition, const RowSelector& rows, const std::vector<std::string>& fields,
                  const std::vector<std::string>& tags, BlockRef* block, std::optional<std::uint64_t> elsewhere) {
  const auto n = rows.by == RowsBy::fresh ? rows.count : static_cast<std::int64_t>(std::max(rows.indexes.size(), rows.keys.size()));
  PublishRequest request;
  request.partition = partition;
  request.rows = rows;
  request.owner = owner;
  request.fields = dense_fields(fields, n);
  request.tags = tags;
  request.elsewhere_bytes = elsewhere;
  if (!fields.empty()) request.reservation = reserve(index, nbytes_of(request.fields));
  if (block != nullptr && request.reservation) *block = request.reservation->block;
  try {
    return index.publish(request);
  } catch (...) {
    if (request.reservation) index.abandon(*request.reservation, owner);
    throw;
  }
}

std::string tag_map(const std::vector<std::pair<std::string, std::string>>& entries) {
  const auto number = [](std::size_t value) {
    std::string bytes(4, '\0');
    for (int i = 0; i < 4; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i));
    return bytes;
  };
  std::string map = number(entries.size());
  for (const auto& [name, value] : entries) map += number(name.size()) + name + number(value.size()) + value;
  return map;
}

Cell cell_of(const Resolution& answer, std::size_t field, std::int64_t position) {
  for (const tq::Piece& piece : answer.piece_lists.at(answer.field_pieces.at(field))) {
    if (position < piece.first || position >= piece.first + piece.count) continue;
    return {answer.blocks.at(static_cast<std::size_t>(piece.block)).ref.word, piece.block_row + (position - piece.first)};
  }
  return {};
}

void check_whole_index(const std::string& directory, bool strong_hash) {
  tq::index::check_index(*tq::index::Env::open(directory), strong_hash);
}

}  // namespace tq_test
