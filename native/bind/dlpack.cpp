#include "bind/dlpack.hpp"

#include <utility>

namespace nb = nanobind;

namespace tq::bind {

namespace {

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64, "the DLPack ABI on 64-bit systems");

constexpr std::int32_t device_cpu = 1;
constexpr const char* capsule_name = "dltensor";  // renamed "used_dltensor" by whoever takes the tensor

struct Exported {
  DLManagedTensor managed{};
  std::vector<std::int64_t> shape;
  std::shared_ptr<void> owner;
};

void delete_exported(DLManagedTensor* managed) { delete static_cast<Exported*>(managed->manager_ctx); }

void delete_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, capsule_name)) return;  // taken: the tensor owns the bytes now
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, capsule_name));
  managed->deleter(managed);
}

}  // namespace

nb::object to_capsule(void* data, ElementType type, std::vector<std::int64_t> shape, std::shared_ptr<void> owner) {
  auto exported = std::make_unique<Exported>();
  exported->shape = std::move(shape);
  exported->owner = std::move(owner);
  DLTensor& tensor = exported->managed.dl_tensor;
  tensor.data = data;
  tensor.device = {device_cpu, 0};
  tensor.ndim = static_cast<std::int32_t>(exported->shape.size());
  tensor.dtype = {type.code, type.bits, 1};
  tensor.shape = exported->shape.data();
  tensor.strides = nullptr;  // row-major
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = delete_exported;
  nb::object capsule = nb::steal(PyCapsule_New(&exported->managed, capsule_name, delete_capsule));
  if (!capsule.is_valid()) throw nb::python_error();
  (void)exported.release();
  return capsule;
}

nb::object to_capsule(void* data, std::uint64_t nbytes, std::shared_ptr<void> owner) {
  return to_capsule(data, ElementType{}, {static_cast<std::int64_t>(nbytes)}, std::move(owner));
}

}  // namespace tq::bind
