#include "bind/text.hpp"

#include "bind/bytes.hpp"
#include "bind/gil.hpp"
#include "core/error.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

nb::object as_fast(const nb::sequence& values, const char* what) {
  if (PyUnicode_Check(values.ptr()) || PyBytes_Check(values.ptr())) {
    throw nb::type_error((std::string(what) + " is one string; pass a list of them").c_str());
  }
  nb::object fast = nb::steal(return_or_sleep([&] { return PySequence_Fast(values.ptr(), what); }));
  if (!fast.is_valid()) throw nb::python_error();
  return fast;
}

[[noreturn]] void refuse(PyObject* item, const char* what, const char* wanted, Py_ssize_t position) {
  throw nb::type_error((std::string(what) + "[" + std::to_string(position) + "] is a " + Py_TYPE(item)->tp_name +
                        ", not " + wanted)
                           .c_str());
}

// `position` below 0: not one of many.
std::string utf8(PyObject* value, const char* what, Py_ssize_t position) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(value, &size);
  if (data == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
    PyErr_Clear();
    const std::string where = position < 0 ? what : std::string(what) + "[" + std::to_string(position) + "]";
    throw Error(ErrorCode::invalid, where + " holds a lone surrogate, which cannot be stored; encode it first");
  }
  return std::string(data, static_cast<std::size_t>(size));
}

// A list of known length, filled without the growth of append: 10,000 keys are one listing.
template <typename T, typename Convert>
nb::object filled_list(const std::vector<T>& values, Convert convert) {
  nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(values.size())));
  if (!list.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < values.size(); ++i) {
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), convert(values[i]).release().ptr());
  }
  return list;
}

}  // namespace

nb::str to_str(const std::string& value) {
  // "replace": a name that is not UTF-8 can only come from a damaged index, and a report of it must not fail.
  const nb::object result =
      nb::steal(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace"));
  if (!result.is_valid()) throw nb::python_error();
  return nb::borrow<nb::str>(result);
}

std::string to_utf8(const nb::str& value, const char* what) { return utf8(value.ptr(), what, -1); }

std::vector<std::string> to_strings(const nb::sequence& values, const char* what) {
  const nb::object fast = as_fast(values, what);
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast.ptr());
  std::vector<std::string> result;
  result.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(fast.ptr(), i);
    if (!PyUnicode_Check(item)) refuse(item, what, "a str", i);
    result.push_back(utf8(item, what, i));
  }
  return result;
}

std::vector<std::string> to_byte_strings(const nb::sequence& values, const char* what) {
  const nb::object fast = as_fast(values, what);
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast.ptr());
  std::vector<std::string> result;
  result.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(fast.ptr(), i);
    if (!PyBytes_Check(item)) refuse(item, what, "bytes", i);
    result.emplace_back(PyBytes_AS_STRING(item), static_cast<std::size_t>(PyBytes_GET_SIZE(item)));
  }
  return result;
}

StringList to_list(const std::vector<std::string>& values) {
  const auto convert = [](const std::string& value) -> nb::object { return to_str(value); };
  return nb::borrow<StringList>(filled_list(values, convert));
}

OptionalStringList to_list(const std::vector<std::optional<std::string>>& values) {
  const auto convert = [](const std::optional<std::string>& value) -> nb::object {
    if (!value) return nb::none();
    return to_str(*value);
  };
  return nb::borrow<OptionalStringList>(filled_list(values, convert));
}

BytesList to_bytes_list(const std::vector<std::string>& values) {
  const auto convert = [](const std::string& value) -> nb::object { return to_bytes(value); };
  return nb::borrow<BytesList>(filled_list(values, convert));
}

}  // namespace tq::bind
