#include "bind/classes.hpp"

#include <nanobind/stl/string.h>

#include "bind/bytes.hpp"
#include "core/error.hpp"
#include "core/types.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

FieldKind checked_kind(int kind) {
  if (kind < 0 || kind > static_cast<int>(FieldKind::column)) {
    throw Error(ErrorCode::invalid, "FieldLayout: kind is " + std::to_string(kind) + ", not DENSE, RAGGED or COLUMN");
  }
  return static_cast<FieldKind>(kind);
}

}  // namespace

void bind_field_layout(nb::module_& module) {
  module.attr("DENSE") = static_cast<int>(FieldKind::dense);
  module.attr("RAGGED") = static_cast<int>(FieldKind::ragged);
  module.attr("COLUMN") = static_cast<int>(FieldKind::column);
  nb::class_<FieldLayout>(module, "FieldLayout", "How one field lies in a block; offsets in bytes from its start.")
      .def(
          "__init__",
          [](FieldLayout* self, std::string name, int kind, std::uint64_t data_offset, std::uint64_t data_nbytes,
             std::uint64_t row_nbytes, std::uint64_t offsets_offset, nb::bytes schema) {
            new (self) FieldLayout{std::move(name), checked_kind(kind), data_offset, data_nbytes, row_nbytes,
                                   offsets_offset, to_string(schema)};
          },
          nb::arg("name"), nb::arg("kind"), nb::arg("data_offset"), nb::arg("data_nbytes"), nb::arg("row_nbytes") = 0,
          nb::arg("offsets_offset") = 0, nb::arg("schema") = nb::bytes("", 0))
      .def_rw("name", &FieldLayout::name)
      .def_prop_rw(
          "kind", [](const FieldLayout& self) { return static_cast<int>(self.kind); },
          [](FieldLayout& self, int kind) { self.kind = checked_kind(kind); })
      .def_rw("data_offset", &FieldLayout::data_offset)
      .def_rw("data_nbytes", &FieldLayout::data_nbytes)
      .def_rw("row_nbytes", &FieldLayout::row_nbytes)
      .def_rw("offsets_offset", &FieldLayout::offsets_offset)
      .def_prop_rw(
          "schema", [](const FieldLayout& self) { return to_bytes(self.schema); },
          [](FieldLayout& self, nb::bytes schema) { self.schema = to_string(schema); });
}

}  // namespace tq::bind
