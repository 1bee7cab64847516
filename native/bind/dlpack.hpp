// DLPack capsules for byte ranges of our mappings. The structs are the ABI of DLPack 0.x ("dltensor" capsules), which
// every consumer still takes; nanobind's own ndarray export needs the interpreter in its deleter, ours must not.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

namespace tq::bind {

// A capsule of a 1-D uint8 tensor on [data, data + nbytes). The consumer's last tensor (or the capsule, when nobody took
// the tensor) drops `owner` on whatever thread that happens, without the interpreter.
nanobind::object to_capsule(void* data, std::uint64_t nbytes, std::shared_ptr<void> owner);

}  // namespace tq::bind
