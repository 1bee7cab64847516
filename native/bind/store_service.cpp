// What the storage service and the statistics ask of the Store.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/gil.hpp"
#include "bind/store.hpp"
#include "bind/text.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using Facts = nb::typed<nb::dict, nb::str, nb::any>;
using FactsList = nb::typed<nb::list, Facts>;
using Counts = nb::typed<nb::dict, nb::str, int>;

FactsList clients(Store& self) {
  nb::list result;
  for (const ClientReport& client : without_gil([&] { return self.clients(); })) {
    nb::dict facts;
    facts["owner"] = client.owner;
    facts["pid"] = client.pid;
    facts["start_time_s"] = client.start_time_s;
    facts["alive"] = client.alive;
    facts["leases"] = client.leases;
    facts["leased_bytes"] = client.leased_bytes;
    facts["pending_bytes"] = client.pending_bytes;
    facts["age_s"] = client.age_s;
    result.append(facts);
  }
  return nb::borrow<FactsList>(result);
}

FactsList leases(Store& self) {
  nb::list result;
  for (const LeaseReport& lease : without_gil([&] { return self.leases(); })) {
    nb::dict facts;
    facts["owner"] = lease.owner;
    facts["pid"] = lease.pid;
    facts["start_time_s"] = lease.start_time_s;
    facts["alive"] = lease.alive;
    facts["partition"] = to_str(lease.facts.partition);
    facts["block"] = lease.block.word;
    facts["rows"] = lease.facts.n_rows;
    facts["fields"] = lease.facts.n_fields;
    facts["nbytes"] = lease.facts.span.nbytes;
    facts["live_bytes"] = lease.facts.live_nbytes;
    facts["retired"] = lease.facts.state == Index::BlockFacts::State::retired;
    facts["views"] = lease.claims;
    facts["age_s"] = lease.age_s;
    result.append(facts);
  }
  return nb::borrow<FactsList>(result);
}

Counts stats(Store& self) {
  nb::dict result;
  for (const auto& [name, value] : without_gil([&] { return self.stats(); })) result[name.c_str()] = value;
  return nb::borrow<Counts>(result);
}

FactsList partition_stats(Store& self) {
  nb::list result;
  for (const Index::PartitionStats& partition : without_gil([&] { return self.partition_stats(); })) {
    nb::dict facts;
    facts["name"] = to_str(partition.name);
    facts["rows"] = partition.rows;
    facts["live_bytes"] = partition.live_bytes;
    facts["keyed_rows"] = partition.keyed_rows;
    result.append(facts);
  }
  return nb::borrow<FactsList>(result);
}

}  // namespace

void bind_store_service(nb::class_<Store>& store) {
  store.def("reclaim", nogil(&Store::reclaim))
      .def("reap", nogil(&Store::reap))
      .def("populate", nogil(&Store::populate), nb::arg("nbytes"))
      .def("make_huge", nogil(&Store::make_huge), nb::arg("nbytes"))
      .def("trim", nogil(&Store::trim))
      .def("spill", nogil(&Store::spill), nb::arg("nbytes"), nb::arg("contiguous") = false)
      .def("clients", &clients)
      .def("leases", &leases)
      .def("stats", &stats)
      .def("partition_stats", &partition_stats)
      .def("check", nogil(&Store::check))
      .def("write_lock_holds", nogil(&Store::write_lock_holds));
}

}  // namespace tq::bind
