#include "core/store/session_snapshot.hpp"

#include "bind/classes.hpp"
#include "bind/gil.hpp"
#include "bind/tables.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

std::uint64_t address(const SessionSnapshot& self, std::int64_t block, std::uint64_t offset, std::uint64_t nbytes) {
  return reinterpret_cast<std::uint64_t>(self.address(static_cast<std::size_t>(block), offset, nbytes));
}

}  // namespace

void bind_session_snapshot(nb::module_& module) {
  nb::class_<SessionSnapshot>(module, "SessionSnapshot", "A whole session as it was at one commit, its blocks leased.")
      .def_prop_ro("session", &SessionSnapshot::session, nb::rv_policy::reference_internal)
      .def_prop_ro("parts", [](const SessionSnapshot& self) { return to_table(self.parts()); }, nb::rv_policy::automatic)
      .def("address", &address, nb::arg("block"), nb::arg("offset"), nb::arg("nbytes"))
      .def("release", nogil(&SessionSnapshot::release));
}

}  // namespace tq::bind
