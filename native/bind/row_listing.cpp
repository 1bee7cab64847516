#include "core/index/index.hpp"

#include "bind/arrays.hpp"
#include "bind/classes.hpp"
#include "bind/text.hpp"

namespace nb = nanobind;

namespace tq::bind {

void bind_row_listing(nb::module_& module) {
  nb::class_<RowListing>(module, "RowListing", "Rows with their keys and tags, in one order.")
      .def_ro("partition_found", &RowListing::partition_found)
      .def_prop_ro("indexes", [](const RowListing& self) { return to_array(self.indexes); }, nb::rv_policy::automatic)
      .def_prop_ro("keys", [](const RowListing& self) { return to_list(self.keys); })
      .def_prop_ro("tags", [](const RowListing& self) { return to_bytes_list(self.tags); });
}

}  // namespace tq::bind
