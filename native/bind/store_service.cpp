// What the storage service and the statistics ask of the Store.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/gil.hpp"
#include "bind/store.hpp"
#include "bind/tables.hpp"
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

struct BlockRow {
  std::int64_t ref, offset, nbytes, live_nbytes, headroom, leased;
};
struct ShapeRow {
  std::int64_t block, group;
};
struct RangeRow {
  std::int64_t shape, row, count;
};

// (where to go on, blocks, groups, shapes, ranges); see transferqueue/_native/store.pyi.
using Window = std::pair<std::uint64_t, std::uint64_t>;  // offset, nbytes

using Table = Array2<std::int64_t>;
using Groups = nb::typed<nb::list, nb::typed<nb::tuple, nb::str, nb::typed<nb::list, nb::str>>>;
using Found = nb::typed<nb::tuple, int, Table, Groups, Table, Table>;

Found sparse_blocks(Store& self, std::uint64_t after, std::optional<Window> within, bool spilled) {
  std::optional<Span> window;
  if (within) window = Span{within->first, within->second};
  const SparseBlocks found = without_gil([&] { return self.sparse_blocks(BlockRef{after}, window, spilled); });
  std::vector<BlockRow> blocks;
  for (const SparseBlocks::Block& block : found.blocks) {
    blocks.push_back({static_cast<std::int64_t>(block.ref.word), static_cast<std::int64_t>(block.span.offset),
                      static_cast<std::int64_t>(block.span.nbytes), static_cast<std::int64_t>(block.live_bytes), block.headroom,
                      block.leased});
  }
  nb::list groups;
  for (const SparseBlocks::Group& group : found.groups) {
    nb::list fields;
    for (const std::string& name : group.fields) fields.append(to_str(name));
    groups.append(nb::make_tuple(to_str(group.partition), fields));
  }
  std::vector<ShapeRow> shapes;
  for (const SparseBlocks::Shape& shape : found.shapes) shapes.push_back({shape.block, shape.group});
  std::vector<RangeRow> ranges;
  for (const SparseBlocks::Range& range : found.ranges) ranges.push_back({range.shape, range.row, range.count});
  return nb::borrow<Found>(
      nb::make_tuple(found.next.word, to_table(blocks), groups, to_table(shapes), to_table(ranges)));
}

std::optional<Window> as_window(const std::optional<Span>& found) {
  return found ? std::optional<Window>({found->offset, found->nbytes}) : std::nullopt;
}

std::optional<Window> cheapest_window(Store& self, std::uint64_t nbytes) {
  return as_window(without_gil([&] { return self.cheapest_window(nbytes); }));
}

std::optional<Window> cheapest_run(Store& self, std::uint64_t nbytes, std::uint64_t most_moved) {
  return as_window(without_gil([&] { return self.cheapest_run(nbytes, most_moved); }));
}

std::optional<std::shared_ptr<PendingBlock>> reserve_from(Store& self, std::uint64_t offset, std::uint64_t nbytes) {
  auto block = without_gil([&] { return self.reserve_from({offset, nbytes}); });
  return block ? std::optional(std::move(block)) : std::nullopt;
}

std::vector<std::shared_ptr<PendingBlock>> reserve_within(Store& self, std::uint64_t offset, std::uint64_t nbytes) {
  return without_gil([&] { return self.reserve_within({offset, nbytes}); });
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
      .def("sparse_blocks", &sparse_blocks, nb::arg("after") = 0, nb::arg("within") = nb::none(), nb::arg("spilled") = false)
      .def("cheapest_window", &cheapest_window, nb::arg("nbytes"))
      .def("cheapest_run", &cheapest_run, nb::arg("nbytes"), nb::arg("most_moved"))
      .def("reserve_from", &reserve_from, nb::arg("offset"), nb::arg("nbytes"))
      .def("reserve_within", &reserve_within, nb::arg("offset"), nb::arg("nbytes"))
      .def("write_lock_holds", nogil(&Store::write_lock_holds));
}

}  // namespace tq::bind
