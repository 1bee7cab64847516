#include "bind/classes.hpp"
#include "bind/gil.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>

namespace nb = nanobind;

namespace tq::bind {

namespace {

double memcpy_seconds(std::uint64_t destination_address, std::uint64_t source_address, std::uint64_t nbytes) {
  return without_gil([&] {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(reinterpret_cast<void*>(destination_address), reinterpret_cast<const void*>(source_address), nbytes);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
}

}  // namespace

void bind_measure(nb::module_& module) {
  module.def("memcpy_seconds", &memcpy_seconds, nb::arg("destination_address"), nb::arg("source_address"),
             nb::arg("nbytes"),
             "One single-thread memcpy, timed: the unit of every benchmark.");
}

}  // namespace tq::bind
