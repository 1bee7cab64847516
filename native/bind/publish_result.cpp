#include <algorithm>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/classes.hpp"
#include "core/index/index.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

// Rows of one put ascend; only for others a copy is sorted.
bool distinct(const IndexesArgument& indexes) {
  std::vector<std::int64_t> rows = to_vector(indexes);
  const auto not_ascending = [](std::int64_t a, std::int64_t b) { return a >= b; };
  if (std::adjacent_find(rows.begin(), rows.end(), not_ascending) == rows.end()) return true;
  std::sort(rows.begin(), rows.end());
  return std::adjacent_find(rows.begin(), rows.end()) == rows.end();
}

}  // namespace

void bind_publish_result(nb::module_& module) {
  nb::class_<PublishResult>(module, "PublishResult", "What a publication did: the rows in the order they were given.")
      .def_ro("partition_id", &PublishResult::partition_id)
      .def_ro("partition_version", &PublishResult::partition_version)
      .def_ro("shed_rows", &PublishResult::shed_rows)
      .def_prop_ro("indexes", [](const PublishResult& self) { return to_read_only_array(self.indexes); }, nb::rv_policy::automatic);
  module.def("distinct", &distinct, nb::arg("indexes").noconvert());
}

}  // namespace tq::bind
