// Layouts and offsets of rows: whatever they say, nothing outside of the block is read.
#include "core/index/layout.hpp"
#include "core/memory/gather.hpp"
#include "core/store/layout_check.hpp"
#include "fuzz/target.hpp"

namespace {

using namespace tq_fuzz;
using tq::FieldInBlock;
using tq::FieldKind;
using tq::FieldLayout;
using tq::Piece;

constexpr std::size_t max_nbytes = 8192;
constexpr std::int64_t max_rows = 1 << 12;

struct Block {
  std::vector<std::byte> bytes;  // exactly as large as the block: the sanitizer sees a byte more
  FieldLayout layout;
  std::int64_t n_rows = 0;
};

Block read_block(Input& in) {
  Block block;
  const std::string_view content = in.bytes(in.below(512));
  block.bytes.resize(in.below(max_nbytes));
  for (std::size_t i = 0; i < block.bytes.size() && !content.empty(); ++i) block.bytes[i] = static_cast<std::byte>(content[i % content.size()]);
  block.layout.name = "f";
  block.layout.kind = static_cast<FieldKind>(in.number<std::uint8_t>() % 3);
  block.layout.data_offset = in.odd_number();
  block.layout.data_nbytes = in.odd_number();
  block.layout.row_nbytes = in.odd_number();
  block.layout.offsets_offset = in.odd_number();
  block.n_rows = static_cast<std::int64_t>(in.odd_number());
  return block;
}

// Offsets of a ragged field in order, one of them off.
void place_offsets(Block& block, Input& in) {
  const std::uint64_t row_nbytes = in.number<std::uint8_t>();
  const std::size_t odd = in.below(64);
  const std::uint64_t odd_value = in.odd_number();
  std::uint64_t value = 0;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(std::min<std::int64_t>(block.n_rows, max_rows)); ++i, value += row_nbytes) {
    const std::uint64_t at = block.layout.offsets_offset + 8 * i;
    if (at > block.bytes.size() || block.bytes.size() - at < 8) return;
    const std::uint64_t stored = i == odd ? odd_value : value;
    std::memcpy(block.bytes.data() + at, &stored, 8);
  }
}

void run(std::string_view input) {
  Input in(input);
  std::vector<Block> blocks;
  for (std::size_t n = 1 + in.below(3); n > 0; --n) {
    blocks.push_back(read_block(in));
    if (in.number<std::uint8_t>() % 2 == 0) place_offsets(blocks.back(), in);
  }
  std::vector<Piece> pieces;
  std::int64_t rows = 0;
  for (std::size_t n = 1 + in.below(4); n > 0; --n) {
    Piece piece;
    piece.block = static_cast<std::int64_t>(in.below(blocks.size() + (in.number<std::uint8_t>() == 0 ? 1 : 0)));
    piece.count = static_cast<std::int64_t>(in.odd_number());
    piece.block_row = static_cast<std::int64_t>(in.odd_number());
    piece.first = rows;
    // Rows that were asked for are indexes that somebody holds: not more than there is memory for.
    if (piece.count < 0 || piece.count > max_rows) piece.count = static_cast<std::int64_t>(in.below(max_rows));
    rows += piece.count;
    pieces.push_back(piece);
  }
  std::vector<FieldInBlock> fields;
  for (const Block& block : blocks) fields.push_back({block.bytes.data(), block.bytes.size(), block.n_rows, &block.layout});
  for (const Block& block : blocks) {
    typed("check_layouts", [&] { tq::check_layouts({block.layout}, block.bytes.size(), block.n_rows); }, true);
    typed("index check_layouts", [&] { tq::index::check_layouts({block.layout}, block.bytes.size(), block.n_rows); }, true);
  }
  const std::uint64_t unit = 1 + in.number<std::uint8_t>();
  const auto n_rows = static_cast<std::size_t>(rows);
  typed("row_nbytes", [&] {
    std::vector<std::int64_t> sizes(n_rows);
    tq::row_nbytes(fields, pieces, sizes);
  }, true);
  typed("ragged sources", [&] {
    std::vector<tq::CopyRange> ranges;
    std::vector<std::int64_t> steps(n_rows + 1);
    const tq::RowShape shape = tq::append_ragged_sources(fields, pieces, unit, ranges, steps);
    require(steps.back() >= 0 && static_cast<std::uint64_t>(steps.back()) * unit == shape.nbytes, "steps end where the bytes do");
    for (std::size_t i = 0; i < n_rows; ++i) require(steps[i] <= steps[i + 1], "steps ascend");
  }, true);
  typed("dense sources", [&] {
    std::vector<tq::CopyRange> ranges;
    tq::append_sources(fields, pieces, unit, ranges);
  }, true);
  typed("gather", [&] {
    const std::uint64_t nbytes = tq::gathered_nbytes(fields, pieces);
    if (nbytes > 4u << 20) return;  // the same bytes many times over
    std::vector<std::byte> destination(nbytes);
    require(tq::gather_rows(fields, pieces, destination.data(), nbytes) == nbytes, "as many bytes as were announced");
  }, true);
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (std::uint8_t kind = 0; kind < 3; ++kind) {
    for (const unsigned rows : {0u, 1u, 4u, 60u}) {
      InputWriter out;
      out.number(std::uint16_t{0});                                     // one block
      out.number(std::uint16_t{4}).number(std::uint32_t{0x01020304});   // of these bytes
      out.number(std::uint16_t{4096}).number(kind);
      out.number(std::uint16_t{0}).number(std::uint8_t{4}).number(std::uint8_t{0}).number(std::uint16_t{1024});  // data
      out.number(std::uint8_t{0}).number(std::uint8_t{16}).number(std::uint8_t{4}).number(std::uint8_t{0}).number(std::uint16_t{2048});
      out.number(std::uint8_t{0}).number(static_cast<std::uint8_t>(rows));
      out.number(std::uint8_t{0}).number(std::uint8_t{16}).number(std::uint16_t{63}).number(std::uint16_t{0});
      out.number(std::uint16_t{0}).number(std::uint16_t{0}).number(std::uint8_t{1}).number(std::uint8_t{0}).number(static_cast<std::uint8_t>(rows));
      out.number(std::uint16_t{0}).number(std::uint8_t{15});
      all.push_back(out.bytes());
    }
  }
  return all;
}

const Registration registration("payload", run, seeds);

}  // namespace
