#include "core/store/layout_check.hpp"

#include <limits>

#include "store/support.hpp"

using tq::FieldKind;
using tq::FieldLayout;

namespace {

FieldLayout field(FieldKind kind, std::uint64_t data_offset, std::uint64_t data_nbytes, std::uint64_t row_nbytes = 0,
                  std::uint64_t offsets_offset = 0) {
  FieldLayout layout;
  layout.name = "a";
  layout.kind = kind;
  layout.data_offset = data_offset;
  layout.data_nbytes = data_nbytes;
  layout.row_nbytes = row_nbytes;
  layout.offsets_offset = offsets_offset;
  return layout;
}

bool accepted(const FieldLayout& layout, std::int64_t rows = 4) {
  try {
    tq::check_layouts({layout}, 4096, rows);
  } catch (const tq::Error& error) {
    CHECK(error.code == tq::ErrorCode::invalid);
    return false;
  }
  return true;
}

constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

}  // namespace

TEST_CASE("dense rows fit their bytes and the bytes fit the block") {
  CHECK(accepted(field(FieldKind::dense, 0, 4096, 1024)));
  CHECK(accepted(field(FieldKind::dense, 4096, 0, 0)));
  CHECK(accepted(field(FieldKind::dense, 0, 64, 8), 0));
  CHECK_FALSE(accepted(field(FieldKind::dense, 0, 4097, 1024)));
  CHECK_FALSE(accepted(field(FieldKind::dense, 1, 4096, 1024)));
  CHECK_FALSE(accepted(field(FieldKind::dense, 0, 4095, 1024)));
  CHECK_FALSE(accepted(field(FieldKind::dense, huge, 2, 0)));
  CHECK_FALSE(accepted(field(FieldKind::dense, 2, huge, 0)));
  CHECK_FALSE(accepted(field(FieldKind::dense, 0, 4096, huge)));
}

TEST_CASE("offsets of ragged rows lie in the block, aligned") {
  CHECK(accepted(field(FieldKind::ragged, 0, 8, 0, 4096 - 40)));
  CHECK_FALSE(accepted(field(FieldKind::ragged, 0, 8, 0, 4096 - 32)));
  CHECK_FALSE(accepted(field(FieldKind::ragged, 0, 8, 0, 4)));
  CHECK_FALSE(accepted(field(FieldKind::ragged, 0, 8, 0, huge - 7)));
  CHECK_FALSE(accepted(field(FieldKind::ragged, 0, 8), std::numeric_limits<std::int64_t>::max()));
}

TEST_CASE("a column lies in the block; a field has a name, once") {
  CHECK(accepted(field(FieldKind::column, 96, 4000)));
  CHECK_FALSE(accepted(field(FieldKind::column, 97, 4000)));
  FieldLayout nameless = field(FieldKind::column, 0, 1);
  nameless.name.clear();
  CHECK_FALSE(accepted(nameless));
  const FieldLayout twice = field(FieldKind::column, 0, 1);
  CHECK_THROWS_AS(tq::check_layouts({twice, twice}, 4096, 1), tq::Error);
}
