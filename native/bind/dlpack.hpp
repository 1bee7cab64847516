// DLPack capsules for memory of ours. The structs are the ABI of DLPack 0.x ("dltensor" capsules), which every consumer still
// takes; nanobind's own ndarray export needs the interpreter in its deleter, ours must not.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tq::bind {

// DLDataTypeCode and bits of one element.
struct ElementType {
  std::uint8_t code = 1;  // unsigned int
  std::uint8_t bits = 8;
  friend bool operator==(const ElementType&, const ElementType&) = default;
};
inline constexpr ElementType int64_elements{0, 64};

// A capsule of a row-major tensor at `data`. The consumer's last tensor (or the capsule, when nobody took the tensor) drops
// `owner` on whatever thread that happens, without the interpreter.
nanobind::object to_capsule(void* data, ElementType type, std::vector<std::int64_t> shape, std::shared_ptr<void> owner);

// The same for [data, data + nbytes) as bytes.
nanobind::object to_capsule(void* data, std::uint64_t nbytes, std::shared_ptr<void> owner);

}  // namespace tq::bind
