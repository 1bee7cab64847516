// Sequences of str and bytes <-> std::vector<std::string>.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>
#include <vector>

namespace tq::bind {

using Strings = nanobind::typed<nanobind::sequence, nanobind::str>;
using ByteStrings = nanobind::typed<nanobind::sequence, nanobind::bytes>;
using StringList = nanobind::typed<nanobind::list, nanobind::str>;
using OptionalStringList = nanobind::typed<nanobind::list, std::optional<nanobind::str>>;
using BytesList = nanobind::typed<nanobind::list, nanobind::bytes>;

// UTF-8 of each. TypeError: not a str, or one str where a sequence of them is meant. ValueError: a lone surrogate, which
// has no UTF-8 (two different keys must never become the same bytes).
std::vector<std::string> to_strings(const nanobind::sequence& values, const char* what);
std::string to_utf8(const nanobind::str& value, const char* what);
std::vector<std::string> to_byte_strings(const nanobind::sequence& values, const char* what);

nanobind::str to_str(const std::string& value);
StringList to_list(const std::vector<std::string>& values);
OptionalStringList to_list(const std::vector<std::optional<std::string>>& values);
BytesList to_bytes_list(const std::vector<std::string>& values);

}  // namespace tq::bind
