// A session as tables of numpy: what the files of a checkpoint hold, column by column.
#include "core/index/saved_session.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/bytes.hpp"
#include "bind/classes.hpp"
#include "bind/tables.hpp"
#include "bind/text.hpp"
#include "core/error.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using Strings2 = std::pair<Array<std::uint8_t>, Array<std::int64_t>>;
using BytesArgument = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using StringsArgument = std::pair<BytesArgument, IndexesArgument>;

struct BlockRow {
  std::int64_t partition, n_rows, nbytes, n_fields, elsewhere_nbytes;  // the last: -1 where it has none
};
struct FieldRow {
  std::int64_t kind, data_offset, data_nbytes, row_nbytes, offsets_offset;
};

Strings2 to_arrays(const StringColumn& column) {
  return {to_array(std::vector<std::uint8_t>(column.bytes.begin(), column.bytes.end())), to_array(column.ends)};
}

StringColumn to_column(const StringsArgument& argument) {
  StringColumn column;
  column.bytes.assign(reinterpret_cast<const char*>(argument.first.data()), argument.first.shape(0));
  column.ends = to_vector(argument.second);
  return column;
}

Array2<std::int64_t> block_table(const SavedSession& self) {
  std::vector<BlockRow> rows;
  for (const SavedBlock& block : self.blocks) {
    rows.push_back({block.partition, block.n_rows, static_cast<std::int64_t>(block.nbytes),
                    static_cast<std::int64_t>(block.fields.size()),
                    block.elsewhere_bytes ? static_cast<std::int64_t>(*block.elsewhere_bytes) : -1});
  }
  return to_table(rows);
}

std::tuple<Array2<std::int64_t>, Strings2, Strings2> field_table(const SavedSession& self) {
  std::vector<FieldRow> rows;
  StringColumn names;
  StringColumn schemas;
  for (const SavedBlock& block : self.blocks) {
    for (const FieldLayout& field : block.fields) {
      rows.push_back({static_cast<std::int64_t>(field.kind), static_cast<std::int64_t>(field.data_offset),
                      static_cast<std::int64_t>(field.data_nbytes), static_cast<std::int64_t>(field.row_nbytes),
                      static_cast<std::int64_t>(field.offsets_offset)});
      names.add(field.name);
      schemas.add(field.schema);
    }
  }
  return {to_table(rows), to_arrays(names), to_arrays(schemas)};
}

std::uint64_t size_of(std::int64_t value) {
  if (value < 0) throw Error(ErrorCode::invalid, "a table of blocks with negative sizes");
  return static_cast<std::uint64_t>(value);
}

void set_blocks(SavedSession& self, const TableArgument& block_table, const TableArgument& field_table,
                const StringsArgument& names, const StringsArgument& schemas) {
  const auto blocks = from_table<BlockRow>(block_table, "blocks");
  const auto fields = from_table<FieldRow>(field_table, "fields");
  const StringColumn field_names = to_column(names);
  const StringColumn field_schemas = to_column(schemas);
  if (field_names.size() != fields.size() || field_schemas.size() != fields.size()) {
    throw Error(ErrorCode::invalid, "names or schemas of other fields");
  }
  std::vector<SavedBlock> result;
  std::size_t at = 0;
  for (const BlockRow& row : blocks) {
    if (row.n_fields < 0 || static_cast<std::size_t>(row.n_fields) > fields.size() - at) {
      throw Error(ErrorCode::invalid, "a block with more fields than there are");
    }
    SavedBlock& block = result.emplace_back();
    block.partition = row.partition;
    block.n_rows = row.n_rows;
    block.nbytes = size_of(row.nbytes);
    if (row.elsewhere_nbytes != -1) block.elsewhere_bytes = size_of(row.elsewhere_nbytes);
    for (std::int64_t i = 0; i < row.n_fields; ++i, ++at) {
      const FieldRow& field = fields[at];
      if (field.kind < 0 || field.kind > static_cast<std::int64_t>(FieldKind::column)) {
        throw Error(ErrorCode::invalid, "a field of an unknown kind");
      }
      FieldLayout& layout = block.fields.emplace_back();
      layout.name = field_names.at(at);
      layout.kind = static_cast<FieldKind>(field.kind);
      layout.data_offset = size_of(field.data_offset);
      layout.data_nbytes = size_of(field.data_nbytes);
      layout.row_nbytes = size_of(field.row_nbytes);
      layout.offsets_offset = size_of(field.offsets_offset);
      layout.schema = field_schemas.at(at);
    }
  }
  if (at != fields.size()) throw Error(ErrorCode::invalid, "fields of no block");
  self.blocks = std::move(result);
}

void set_partitions(SavedSession& self, const Strings& names, const nb::typed<nb::sequence, Strings>& known_fields) {
  self.partitions = to_strings(names, "partitions");
  self.known_fields.clear();
  for (const nb::handle fields : known_fields) self.known_fields.push_back(to_strings(nb::cast<nb::sequence>(fields), "known_fields"));
}

nb::typed<nb::list, StringList> known_fields(const SavedSession& self) {
  nb::list result;
  for (const auto& fields : self.known_fields) result.append(to_list(fields));
  return nb::typed<nb::list, StringList>(std::move(result));
}

using TaskTuple = nb::typed<nb::tuple, int, nb::str, nb::bytes, Array2<std::int64_t>>;

nb::typed<nb::list, TaskTuple> tasks(const SavedSession& self) {
  nb::list result;
  for (const SavedTask& task : self.tasks) {
    result.append(nb::make_tuple(task.partition, to_str(task.name), to_bytes(task.sampler_state), to_table(task.consumed)));
  }
  return nb::typed<nb::list, TaskTuple>(std::move(result));
}

void add_task(SavedSession& self, std::int64_t partition, const nb::str& name, const nb::bytes& sampler_state,
              const TableArgument& consumed) {
  self.tasks.push_back({partition, to_utf8(name, "task"), to_string(sampler_state), from_table<RowRange>(consumed, "consumed")});
}

void set_rows(SavedSession& self, const TableArgument& rows, const StringsArgument& keys, const StringsArgument& tags) {
  self.rows = from_table<SavedRow>(rows, "rows");
  self.keys = to_column(keys);
  self.tags = to_column(tags);
}

void set_runs(SavedSession& self, const TableArgument& runs, const TableArgument& cells, const IndexesArgument& cell_fields) {
  self.runs = from_table<SavedRun>(runs, "runs");
  self.cells = from_table<SavedCell>(cells, "cells");
  self.cell_fields = to_vector(cell_fields);
}

}  // namespace

void bind_saved_session(nb::module_& module) {
  constexpr auto fresh = nb::rv_policy::automatic;
  nb::class_<SavedSession>(module, "SavedSession", "All of a session but its payload, as tables.")
      .def(nb::init<>())
      .def_rw("next_row", &SavedSession::next_row)
      .def_prop_ro("partitions", [](const SavedSession& self) { return to_list(self.partitions); })
      .def_prop_ro("known_fields", &known_fields)
      .def_prop_ro("blocks", &block_table, fresh)
      .def_prop_ro("fields", &field_table, fresh)
      .def_prop_ro("runs", [](const SavedSession& self) { return to_table(self.runs); }, fresh)
      .def_prop_ro("cells", [](const SavedSession& self) { return to_table(self.cells); }, fresh)
      .def_prop_ro("cell_fields", [](const SavedSession& self) { return to_array(self.cell_fields); }, fresh)
      .def_prop_ro("rows", [](const SavedSession& self) { return to_table(self.rows); }, fresh)
      .def_prop_ro("keys", [](const SavedSession& self) { return to_arrays(self.keys); }, fresh)
      .def_prop_ro("tags", [](const SavedSession& self) { return to_arrays(self.tags); }, fresh)
      .def_prop_ro("tasks", &tasks)
      .def("set_partitions", &set_partitions, nb::arg("names"), nb::arg("known_fields"))
      .def("set_blocks", &set_blocks, nb::arg("blocks").noconvert(), nb::arg("fields").noconvert(), nb::arg("names"),
           nb::arg("schemas"))
      .def("set_runs", &set_runs, nb::arg("runs").noconvert(), nb::arg("cells").noconvert(), nb::arg("cell_fields").noconvert())
      .def("set_rows", &set_rows, nb::arg("rows").noconvert(), nb::arg("keys"), nb::arg("tags"))
      .def("add_task", &add_task, nb::arg("partition"), nb::arg("name"), nb::arg("sampler_state"), nb::arg("consumed").noconvert());
}

}  // namespace tq::bind
