// Resolved.columns: the columns of a get, ready for the codec.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "bind/column_types.hpp"
#include "bind/text.hpp"
#include "core/store/resolved.hpp"

namespace tq::bind {

using AnyList = nanobind::typed<nanobind::list, nanobind::any>;
using Columns = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;
using ColumnsOfGet = nanobind::typed<nanobind::tuple, Columns, AnyList, AnyList, int, int>;
ColumnsOfGet columns(Resolved& self, ColumnTypes& types, const Strings& fields, bool views, bool shared,
                        std::uint64_t copy_below);

}  // namespace tq::bind
