#include "core/store/layout_check.hpp"

#include <string>
#include <unordered_set>

#include "core/error.hpp"

namespace tq {

namespace {

[[noreturn]] void refuse(const FieldLayout& field, const std::string& why) {
  throw Error(ErrorCode::invalid, "field '" + field.name + "': " + why);
}

void require_inside(const FieldLayout& field, const char* what, std::uint64_t offset, std::uint64_t nbytes,
                    std::uint64_t block_nbytes) {
  if (offset > block_nbytes || nbytes > block_nbytes - offset) {
    refuse(field, std::string(what) + " [" + std::to_string(offset) + ", +" + std::to_string(nbytes) +
                      ") outside the block of " + std::to_string(block_nbytes) + " bytes");
  }
}

}  // namespace

void check_layouts(const std::vector<FieldLayout>& fields, std::uint64_t block_nbytes, std::int64_t rows) {
  std::unordered_set<std::string> names;
  const auto n = static_cast<std::uint64_t>(rows);
  for (const FieldLayout& field : fields) {
    if (field.name.empty()) throw Error(ErrorCode::invalid, "a field without a name");
    if (!names.insert(field.name).second) refuse(field, "named twice in one put");
    require_inside(field, "data", field.data_offset, field.data_nbytes, block_nbytes);
    switch (field.kind) {
      case FieldKind::dense:
        if (field.row_nbytes != 0 && (n > field.data_nbytes / field.row_nbytes)) {
          refuse(field, std::to_string(rows) + " rows of " + std::to_string(field.row_nbytes) + " bytes in " +
                            std::to_string(field.data_nbytes));
        }
        break;
      case FieldKind::ragged:
        if (field.offsets_offset % 8 != 0) refuse(field, "offsets are not aligned to 8 bytes");
        if (n >= block_nbytes / 8) refuse(field, "more rows than the block can hold offsets for");
        require_inside(field, "offsets", field.offsets_offset, (n + 1) * 8, block_nbytes);
        break;
      case FieldKind::column:
        break;
    }
  }
}

}  // namespace tq
