#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/bytes.hpp"
#include "bind/classes.hpp"
#include "bind/columns.hpp"
#include "bind/dlpack.hpp"
#include "bind/gil.hpp"
#include "bind/text.hpp"
#include "core/store/resolved.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

static_assert(sizeof(Piece) == 4 * sizeof(std::int64_t), "a piece is a row of the int64 [p, 4] array");

// A negative index becomes one that is out of range, which the core names.
std::size_t position(std::int64_t index) { return static_cast<std::size_t>(index); }

std::vector<Piece> to_pieces(const PiecesArgument& array) {
  std::vector<Piece> pieces(array.shape(0));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::int64_t* row = array.data() + static_cast<std::int64_t>(i) * array.stride(0);
    const std::int64_t step = array.stride(1);
    pieces[i] = {row[0], row[step], row[2 * step], row[3 * step]};
  }
  return pieces;
}

Array2<std::int64_t> pieces(const Resolved& self, std::int64_t field) {
  const std::vector<Piece>& list = self.pieces(position(field));
  std::vector<std::int64_t> flat(list.size() * 4);
  if (!list.empty()) std::memcpy(flat.data(), list.data(), list.size() * sizeof(Piece));
  return to_array2(std::move(flat), list.size(), 4);
}

nb::object view(Resolved& self, std::int64_t block, std::uint64_t offset, std::uint64_t nbytes, bool shared) {
  const std::shared_ptr<void> bytes =
      without_gil([&] { return self.view(position(block), offset, nbytes, shared); });
  return to_capsule(bytes.get(), nbytes, bytes);
}

std::uint64_t view_address(const Resolved& self, std::int64_t block, std::uint64_t offset) {
  return reinterpret_cast<std::uint64_t>(self.view_address(position(block), offset));
}

std::uint64_t copy_rows(const Resolved& self, std::int64_t field, const PiecesArgument& pieces,
                        std::uint64_t destination_address, std::uint64_t destination_nbytes) {
  const std::vector<Piece> converted = to_pieces(pieces);
  return without_gil([&] {
    return self.copy_rows(position(field), converted, reinterpret_cast<std::byte*>(destination_address),
                          destination_nbytes);
  });
}

Array<std::int64_t> row_nbytes(const Resolved& self, std::int64_t field, const PiecesArgument& pieces) {
  const std::vector<Piece> converted = to_pieces(pieces);
  return to_array(without_gil([&] { return self.row_nbytes(position(field), converted); }));
}

nb::bytes column_bytes(const Resolved& self, std::int64_t field, std::int64_t block) {
  return to_bytes(without_gil([&] { return self.column_bytes(position(field), position(block)); }));
}

std::optional<FieldLayout> layout(const Resolved& self, std::int64_t field, std::int64_t block) {
  const FieldLayout* found = self.layout(position(field), position(block));
  return found == nullptr ? std::nullopt : std::optional<FieldLayout>(*found);
}

// The distinct types of a field's rows, in the order of the blocks.
nb::typed<nb::list, nb::bytes> schemas(const Resolved& self, std::int64_t field) {
  nb::typed<nb::list, nb::bytes> found;
  std::vector<const std::string*> seen;
  std::int64_t last_block = -1;
  for (const Piece& piece : self.pieces(position(field))) {
    if (piece.block == last_block) continue;
    last_block = piece.block;
    const FieldLayout* layout = self.layout(position(field), position(piece.block));
    if (layout == nullptr) continue;
    const bool known = std::ranges::any_of(seen, [&](const std::string* other) { return *other == layout->schema; });
    if (known) continue;
    seen.push_back(&layout->schema);
    found.append(to_bytes(layout->schema));
  }
  return found;
}

}  // namespace

void bind_resolved(nb::module_& module) {
  nb::class_<Resolved>(module, "Resolved",
                       "Rows x fields at one snapshot, leased while this object or a view made from it is alive.")
      .def_prop_ro("partition_found", [](const Resolved& self) { return self.resolution().partition_found; })
      .def_prop_ro("partition_version", [](const Resolved& self) { return self.resolution().partition_version; })
      .def_prop_ro("indexes", [](const Resolved& self) { return to_array(self.resolution().indexes); }, nb::rv_policy::automatic)
      .def_prop_ro("gone", [](const Resolved& self) { return to_array(self.resolution().gone); }, nb::rv_policy::automatic)
      .def_prop_ro("fields", [](const Resolved& self) { return to_list(self.resolution().fields); })
      .def_prop_ro("n_rows", [](const Resolved& self) { return self.resolution().indexes.size(); })
      .def_prop_ro("complete", &Resolved::complete)
      .def_prop_ro("n_blocks", [](const Resolved& self) { return self.resolution().blocks.size(); })
      .def("columns", &columns, nb::arg("types"), nb::arg("fields"), nb::kw_only(), nb::arg("views"), nb::arg("shared"),
           nb::arg("copy_below"))
      .def("pieces", &pieces, nb::arg("field"))
      .def(
          "piece_list_id",
          [](const Resolved& self, std::int64_t field) {
            self.pieces(position(field));  // checks
            return self.resolution().field_pieces[position(field)];
          },
          nb::arg("field"))
      .def(
          "block_rows", [](const Resolved& self, std::int64_t block) { return self.block(position(block)).n_rows; },
          nb::arg("block"))
      .def(
          "block_id", [](const Resolved& self, std::int64_t block) { return self.block(position(block)).ref.generation(); },
          nb::arg("block"))
      .def(
          "block_spilled",
          [](const Resolved& self, std::int64_t block) { return self.block(position(block)).span.spilled(); },
          nb::arg("block"))
      .def("layout", &layout, nb::arg("field"), nb::arg("block"))
      .def("schemas", &schemas, nb::arg("field"))
      .def("view", &view, nb::arg("block"), nb::arg("offset"), nb::arg("nbytes"), nb::kw_only(),
           nb::arg("shared") = false)
      .def("view_address", &view_address, nb::arg("block"), nb::arg("offset"))
      .def("copy_rows", &copy_rows, nb::arg("field"), nb::arg("pieces").noconvert(), nb::arg("destination_address"),
           nb::arg("destination_nbytes"))
      .def("row_nbytes", &row_nbytes, nb::arg("field"), nb::arg("pieces").noconvert())
      .def("column_bytes", &column_bytes, nb::arg("field"), nb::arg("block"))
      .def("release", nogil(&Resolved::release))
      .def("finish", nogil(&Resolved::finish))
      .def("count", &Resolved::count, nb::arg("viewed_nbytes"), nb::arg("copied_nbytes"));
}

}  // namespace tq::bind
