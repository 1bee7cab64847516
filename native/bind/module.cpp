#include "bind/classes.hpp"

namespace nb = nanobind;

NB_MODULE(_native, module) {
  // A session and its results are often module globals, which the interpreter never frees: no leak of ours, no news.
  nb::set_leak_warnings(false);
  tq::bind::bind_field_layout(module);
  tq::bind::bind_measure(module);
}
