#include "memory/support.hpp"

#include "core/memory/gather.hpp"

namespace tq_test::gather_test {

using tq::ErrorCode;
using tq::FieldInBlock;
using tq::FieldKind;
using tq::FieldLayout;
using tq::Piece;

namespace {

// A block whose bytes count up from `first`, with a dense field of 4-byte rows at byte 16.
struct DenseBlock {
  std::vector<std::byte> bytes;
  FieldLayout layout;
  FieldInBlock field;
  DenseBlock(std::int64_t rows, unsigned first) : bytes(16 + static_cast<std::size_t>(rows) * 4) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte((first + i) & 0xff);
    layout.name = "dense";
    layout.data_offset = 16;
    layout.data_nbytes = static_cast<std::uint64_t>(rows) * 4;
    layout.row_nbytes = 4;
    field = {bytes.data(), bytes.size(), rows, &layout};
  }
  DenseBlock(const DenseBlock&) = delete;
};

// Rows of the given sizes; row r is filled with 10 + r. The offsets stand behind the data.
struct RaggedBlock {
  std::vector<std::byte> bytes;
  FieldLayout layout;
  FieldInBlock field;
  explicit RaggedBlock(const std::vector<std::int64_t>& sizes) {
    std::vector<std::int64_t> offsets{0};
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      bytes.insert(bytes.end(), static_cast<std::size_t>(sizes[r]), std::byte(10 + r));
      offsets.push_back(offsets.back() + sizes[r]);
    }
    layout.name = "ragged";
    layout.kind = FieldKind::ragged;
    layout.data_nbytes = bytes.size();
    layout.offsets_offset = bytes.size();
    const auto* raw = reinterpret_cast<const std::byte*>(offsets.data());
    bytes.insert(bytes.end(), raw, raw + offsets.size() * 8);
    field = {bytes.data(), bytes.size(), static_cast<std::int64_t>(sizes.size()), &layout};
  }
  RaggedBlock(const RaggedBlock&) = delete;
  void set_offset(std::size_t row, std::int64_t value) { std::memcpy(bytes.data() + layout.offsets_offset + row * 8, &value, 8); }
};

std::vector<int> gathered(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces) {
  std::vector<std::byte> out(tq::gathered_nbytes(blocks, pieces));
  CHECK(tq::gather_rows(blocks, pieces, out.data(), out.size()) == out.size());
  std::vector<int> values;
  for (const std::byte b : out) values.push_back(static_cast<int>(b));
  return values;
}

}  // namespace

TEST_CASE("dense rows of several blocks, in the order asked") {
  const DenseBlock a(4, 0);
  const DenseBlock b(4, 100);
  const FieldInBlock blocks[] = {a.field, b.field};
  const Piece pieces[] = {{0, 1, 1, 3}, {1, 2, 0, 0}, {3, 1, 0, 2}, {4, 0, 1, 4}};
  CHECK(gathered(blocks, pieces) == std::vector<int>{128, 129, 130, 131, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27});
  std::int64_t sizes[4] = {};
  tq::row_nbytes(blocks, pieces, sizes);
  for (const std::int64_t n : sizes) CHECK(n == 4);
}

TEST_CASE("ragged rows, empty ones among them") {
  const RaggedBlock a({2, 0, 3});
  const RaggedBlock b({0, 1});
  const FieldInBlock blocks[] = {a.field, b.field};
  const Piece pieces[] = {{0, 2, 0, 1}, {2, 2, 1, 0}, {4, 1, 0, 0}};
  CHECK(gathered(blocks, pieces) == std::vector<int>{12, 12, 12, 11, 10, 10});
  std::int64_t sizes[5] = {};
  tq::row_nbytes(blocks, pieces, sizes);
  CHECK(std::vector<std::int64_t>(sizes, sizes + 5) == std::vector<std::int64_t>{0, 3, 0, 1, 2});
}

TEST_CASE("nothing at all") {
  const DenseBlock empty(0, 0);
  const RaggedBlock hollow({0, 0});
  const FieldInBlock blocks[] = {empty.field, hollow.field};
  CHECK(gathered(blocks, {}).empty());
  const Piece pieces[] = {{0, 0, 0, 0}, {0, 2, 1, 0}};
  CHECK(gathered(blocks, pieces).empty());
}

TEST_CASE("ten thousand scattered rows") {
  std::vector<std::unique_ptr<DenseBlock>> owners;
  std::vector<FieldInBlock> blocks;
  std::vector<Piece> pieces;
  for (int i = 0; i < 10'000; ++i) {
    owners.push_back(std::make_unique<DenseBlock>(1, static_cast<unsigned>(i % 200)));
    blocks.push_back(owners.back()->field);
    pieces.push_back({i, 1, 9'999 - i, 0});
  }
  const std::vector<int> values = gathered(blocks, pieces);
  REQUIRE(values.size() == 40'000);
  for (int i = 0; i < 10'000; ++i) REQUIRE(values[static_cast<std::size_t>(i) * 4] == (9'999 - i) % 200 + 16);
}

TEST_CASE("pieces that do not fit their block, and destinations that do not fit the rows") {
  const DenseBlock a(4, 0);
  const FieldInBlock blocks[] = {a.field};
  const FieldInBlock lacking[] = {{a.bytes.data(), a.bytes.size(), 4, nullptr}};
  FieldLayout blob = a.layout;
  blob.kind = FieldKind::column;
  const FieldInBlock column[] = {{a.bytes.data(), a.bytes.size(), 4, &blob}};
  const auto refused = [](std::span<const FieldInBlock> in, Piece piece) {
    CHECK(error_of([&] { tq::gathered_nbytes(in, {&piece, 1}); }).code == ErrorCode::invalid);
  };
  refused(blocks, {0, 1, 0, 4});
  refused(blocks, {0, 5, 0, 0});
  refused(blocks, {0, -1, 0, 0});
  refused(blocks, {0, 1, 0, -1});
  refused(blocks, {0, 1, 1, 0});
  refused(blocks, {0, 1, -1, 0});
  refused(blocks, {0, INT64_MAX, 0, 1});
  refused(lacking, {0, 1, 0, 0});
  const Piece first{0, 1, 0, 0};
  CHECK(error_of([&] { tq::gathered_nbytes(column, {&first, 1}); }).code == ErrorCode::corrupt);
  std::byte out[16] = {};
  const Piece all{0, 4, 0, 0};
  CHECK(error_of([&] { tq::gather_rows(blocks, {&all, 1}, out, 15); }).code == ErrorCode::invalid);
  CHECK(all_equal(out, 16, 0));
  std::int64_t sizes[3] = {};
  CHECK(error_of([&] { tq::row_nbytes(blocks, {&all, 1}, sizes); }).code == ErrorCode::invalid);
}

TEST_CASE("ragged rows counted in units") {
  const RaggedBlock a({4, 0, 8});
  const RaggedBlock single({12});
  DenseBlock dense(3, 0);
  const FieldInBlock blocks[] = {a.field, single.field, dense.field};
  const Piece pieces[] = {{0, 2, 0, 1}, {2, 1, 1, 0}, {3, 2, 2, 1}};
  std::vector<tq::CopyRange> ranges{{nullptr, dense.bytes.data(), 16}};  // another field's, right before `dense`'s rows
  std::int64_t steps[6] = {};
  const tq::RowShape shape = tq::append_ragged_sources(blocks, pieces, 4, ranges, steps);
  CHECK(std::vector<std::int64_t>(steps, steps + 6) == std::vector<std::int64_t>{0, 0, 2, 5, 6, 7});
  CHECK(shape.nbytes == 28);
  CHECK(shape.shortest == 0);
  CHECK(shape.longest == 3);
  REQUIRE(ranges.size() == 4);
  CHECK(ranges[1].source == a.bytes.data() + 4);
  CHECK(ranges[2].nbytes == 12);
  CHECK(ranges[3].source == dense.bytes.data() + 20);
}

TEST_CASE("rows that are no whole units, or not of the size that their type says") {
  const RaggedBlock a({4, 6});
  const DenseBlock dense(2, 0);
  const FieldInBlock blocks[] = {a.field, dense.field};
  std::vector<tq::CopyRange> ranges;
  std::int64_t steps[3] = {};
  const Piece ragged{0, 2, 0, 0};
  CHECK(error_of([&] { tq::append_ragged_sources(blocks, {&ragged, 1}, 4, ranges, steps); }).code == ErrorCode::corrupt);
  CHECK(error_of([&] { tq::append_ragged_sources(blocks, {&ragged, 1}, 3, ranges, steps); }).code == ErrorCode::corrupt);
  CHECK(tq::append_ragged_sources(blocks, {&ragged, 1}, 2, ranges, steps).longest == 3);
  CHECK(error_of([&] { tq::append_ragged_sources(blocks, {&ragged, 1}, 2, ranges, {steps, 2}); }).code == ErrorCode::invalid);
  std::int64_t many[4] = {};
  CHECK(error_of([&] { tq::append_ragged_sources(blocks, {&ragged, 1}, 2, ranges, many); }).code == ErrorCode::invalid);
  const Piece rows{0, 2, 1, 0};
  CHECK(tq::append_sources(blocks, {&rows, 1}, 4, ranges).nbytes == 8);
  CHECK(error_of([&] { tq::append_sources(blocks, {&rows, 1}, 8, ranges); }).code == ErrorCode::corrupt);
  CHECK(error_of([&] { tq::append_sources(blocks, {&ragged, 1}, 5, ranges); }).code == ErrorCode::corrupt);
}

TEST_CASE("damaged offsets and layouts are an error, not a stray read") {
  const Piece all{0, 3, 0, 0};
  const auto corrupt = [&all](const FieldInBlock& field) {
    const tq::Error error = error_of([&] { tq::gathered_nbytes({&field, 1}, {&all, 1}); });
    CHECK(error.code == ErrorCode::corrupt);
    CHECK_MESSAGE(contains(error.what(), field.layout->name), error.what());
  };
  SUBCASE("an offset beyond the data") {
    RaggedBlock a({2, 0, 3});
    a.set_offset(3, 6);
    corrupt(a.field);
  }
  SUBCASE("a negative offset") {
    RaggedBlock a({2, 0, 3});
    a.set_offset(0, -8);
    corrupt(a.field);
  }
  SUBCASE("offsets that decrease") {
    RaggedBlock a({2, 0, 3});
    a.set_offset(0, 5);
    a.set_offset(3, 0);
    corrupt(a.field);
  }
  SUBCASE("offsets outside the block") {
    RaggedBlock a({2, 0, 3});
    a.layout.offsets_offset = a.bytes.size() - 8;
    corrupt(a.field);
  }
  SUBCASE("data outside the block") {
    DenseBlock a(4, 0);
    a.layout.data_offset = ~std::uint64_t{0};
    corrupt(a.field);
  }
  SUBCASE("rows larger than the data") {
    DenseBlock a(4, 0);
    a.layout.row_nbytes = 5;
    corrupt(a.field);
  }
}

}  // namespace tq_test::gather_test
