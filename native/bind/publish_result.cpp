#include "bind/arrays.hpp"
#include "bind/classes.hpp"
#include "core/index/index.hpp"

namespace nb = nanobind;

namespace tq::bind {

void bind_publish_result(nb::module_& module) {
  nb::class_<PublishResult>(module, "PublishResult", "What a publication did: the rows in the order they were given.")
      .def_ro("partition_id", &PublishResult::partition_id)
      .def_ro("partition_version", &PublishResult::partition_version)
      .def_prop_ro("indexes", [](const PublishResult& self) { return to_array(self.indexes); }, nb::rv_policy::automatic);
}

}  // namespace tq::bind
