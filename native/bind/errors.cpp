#include "bind/errors.hpp"

#include <nanobind/nanobind.h>

#include <cerrno>
#include <exception>
#include <string>
#include <system_error>

#include "bind/gil.hpp"
#include "core/error.hpp"
#include "core/memory/mapping_budget.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

// How an Error's facts become attributes of the Python exception.
enum class Facts {
  none,
  figures,    // <name>_bytes (or <name>_pid) for each figure, and `resource`
  rows,       // rows
  keys,       // keys
  partition,  // partition_id
  session,    // session
  path,       // path
  timeout,    // missing, holder_pid
  limit,      // partition_id, limit, when_exceeded, cap, there, wanted, never
};

struct Mapping {
  ErrorCode code;
  const char* class_name;  // in transferqueue.errors
  Facts facts;
};

constexpr Mapping mappings[] = {
    {ErrorCode::storage_full, "StorageFullError", Facts::figures},
    {ErrorCode::index_full, "StorageFullError", Facts::figures},
    {ErrorCode::limit_exceeded, "LimitExceededError", Facts::limit},
    {ErrorCode::stale_rows, "StaleMetadataError", Facts::rows},
    {ErrorCode::claim_over, "StaleMetadataError", Facts::none},
    {ErrorCode::key_not_found, "KeyNotFoundError", Facts::keys},
    {ErrorCode::partition_not_found, "PartitionNotFoundError", Facts::partition},
    {ErrorCode::session_not_found, "SessionNotFoundError", Facts::session},
    {ErrorCode::layout_mismatch, "LayoutMismatchError", Facts::path},
    {ErrorCode::corrupt, "CorruptSegmentError", Facts::path},
    {ErrorCode::timeout, "TransferTimeoutError", Facts::timeout},
    {ErrorCode::closed, "ClosedError", Facts::session},
};

nb::object first_name(const Error& error) {
  if (error.names.empty()) return nb::none();
  return nb::str(error.names.front().c_str(), error.names.front().size());
}

nb::dict details(const Error& error, Facts facts) {
  nb::dict result;
  switch (facts) {
    case Facts::none:
      break;
    case Facts::figures:
      if (error.resource != nullptr) {
        result["resource"] = error.resource;
      } else {
        result["resource"] = error.code == ErrorCode::index_full ? "index" : "payload";
      }
      for (const auto& [name, value] : error.figures) {
        result[(name.ends_with("_pid") ? name : name + "_bytes").c_str()] = value;
      }
      break;
    case Facts::rows: {
      nb::list rows;
      for (const std::int64_t row : error.rows) rows.append(row);
      result["rows"] = nb::tuple(rows);
      break;
    }
    case Facts::keys: {
      nb::list keys;
      for (const std::string& name : error.names) keys.append(nb::str(name.c_str(), name.size()));
      result["keys"] = nb::tuple(keys);
      break;
    }
    case Facts::partition:
      result["partition_id"] = first_name(error);
      break;
    case Facts::session:
      result["session"] = first_name(error);
      break;
    case Facts::path:
      result["path"] = first_name(error);
      break;
    case Facts::timeout:
      result["missing"] = first_name(error);
      for (const auto& [name, value] : error.figures) result[name.c_str()] = value;  // holder_pid
      break;
    case Facts::limit: {
      constexpr const char* attributes[] = {"partition_id", "limit", "when_exceeded"};
      for (std::size_t i = 0; i < error.names.size() && i < 3; ++i) {
        result[attributes[i]] = nb::str(error.names[i].c_str(), error.names[i].size());
      }
      for (const auto& [name, value] : error.figures) {
        if (name == "never") {
          result["never"] = value != 0;
        } else {
          result[name.c_str()] = value;
        }
      }
      break;
    }
  }
  return result;
}

nb::handle error_class(const char* name) {
  // Never freed: errors may be raised until the interpreter is gone, and its teardown order is not ours.
  static PyObject* const module = nb::module_::import_("transferqueue.errors").release().ptr();
  return PyObject_GetAttrString(module, name);
}

// Paths in it need not be UTF-8.
nb::object as_text(const std::string& what) {
  return nb::steal(PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace"));
}

// The error of the system in words, too, as Python's own OSErrors have it: few know what errno 24 is.
std::string with_cause(const Error& error) {
  const std::string what = error.what();
  if (error.errno_value <= 0) return what;
  const std::string cause = std::generic_category().message(error.errno_value);
  return what.ends_with(cause) ? what : what + ": " + cause;
}

// What a limit of this process, or of the machine, may be the cause of.
bool is_refusal(int errno_value) {
  return errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOMEM || errno_value == EFBIG;
}

void raise_refusal(int errno_value, const nb::object& message) {
  static PyObject* const module = nb::module_::import_("transferqueue.refusals").release().ptr();
  const nb::object instance = nb::steal(
      return_or_sleep([&] { return PyObject_CallMethod(module, "refusal", "iO", errno_value, message.ptr()); }));
  if (instance.is_valid()) PyErr_SetObject(instance.type().ptr(), instance.ptr());
}

PyObject* already_applied = nullptr;  // never freed, as the module is not

void raise(const Error& error) {
  if (error.code == ErrorCode::already_applied) {
    PyErr_SetString(already_applied, error.what());
    return;
  }
  if (error.code == ErrorCode::invalid) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return;
  }
  if (error.code == ErrorCode::system) {
    const nb::object message = as_text(with_cause(error));
    if (is_refusal(error.errno_value)) return raise_refusal(error.errno_value, message);
    nb::object instance = nb::steal(PyObject_CallFunction(PyExc_OSError, "iO", error.errno_value, message.ptr()));
    if (instance.is_valid()) PyErr_SetObject(instance.type().ptr(), instance.ptr());
    return;
  }
  for (const Mapping& mapping : mappings) {
    if (mapping.code != error.code) continue;
    const nb::object cls = nb::steal(error_class(mapping.class_name));
    if (!cls.is_valid()) return;  // an AttributeError is set
    const nb::tuple arguments = nb::make_tuple(as_text(error.what()));
    const nb::dict facts = details(error, mapping.facts);
    const nb::object instance =
        nb::steal(return_or_sleep([&] { return PyObject_Call(cls.ptr(), arguments.ptr(), facts.ptr()); }));
    if (instance.is_valid()) PyErr_SetObject(cls.ptr(), instance.ptr());
    return;
  }
  PyErr_SetString(PyExc_SystemError, error.what());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const MappingLimitError& error) {
    try {
      raise_refusal(ENOMEM, as_text(error.what()));  // a MemoryError: what a codec catches to copy instead of viewing
    } catch (nb::python_error& failure) {
      failure.restore();
    }
  } catch (const Error& error) {
    try {
      raise(error);
    } catch (nb::python_error& failure) {
      failure.restore();  // what went wrong while building the error (an import that fails) is what the caller sees
    }
  }
}

}  // namespace

void register_errors(nb::module_& module) {
  already_applied = PyErr_NewException("transferqueue._native.AlreadyApplied", PyExc_Exception, nullptr);
  if (already_applied == nullptr) nb::raise_python_error();
  module.attr("AlreadyApplied") = nb::borrow(already_applied);
  nb::register_exception_translator(translate);
}

}  // namespace tq::bind
