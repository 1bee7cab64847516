// tq::Error -> the exception classes of transferqueue.errors.
#pragma once

#include <nanobind/nanobind.h>

namespace tq::bind {

// Registers the translation. The classes are imported at the first error, since transferqueue imports this module.
void register_errors(nanobind::module_& module);

}  // namespace tq::bind
