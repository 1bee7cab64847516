// bytes <-> std::string. nanobind's own string caster means str.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace tq::bind {

inline std::string to_string(const nanobind::bytes& value) { return std::string(value.c_str(), value.size()); }
inline nanobind::bytes to_bytes(const std::string& value) { return nanobind::bytes(value.data(), value.size()); }

}  // namespace tq::bind
