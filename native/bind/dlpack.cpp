#include "bind/dlpack.hpp"

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
constexpr std::uint8_t code_uint = 1;
constexpr const char* capsule_name = "dltensor";  // renamed "used_dltensor" by whoever takes the tensor

struct Bytes {
  DLManagedTensor managed{};
  std::int64_t shape = 0;
  std::int64_t stride = 1;
  std::shared_ptr<void> owner;
};

void delete_bytes(DLManagedTensor* managed) { delete static_cast<Bytes*>(managed->manager_ctx); }

void delete_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, capsule_name)) return;  // taken: the tensor owns the bytes now
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, capsule_name));
  managed->deleter(managed);
}

}  // namespace

nb::object to_capsule(void* data, std::uint64_t nbytes, std::shared_ptr<void> owner) {
  auto bytes = std::make_unique<Bytes>();
  bytes->shape = static_cast<std::int64_t>(nbytes);
  bytes->owner = std::move(owner);
  bytes->managed.dl_tensor = DLTensor{data, {device_cpu, 0}, 1, {code_uint, 8, 1}, &bytes->shape, &bytes->stride, 0};
  bytes->managed.manager_ctx = bytes.get();
  bytes->managed.deleter = delete_bytes;
  nb::object capsule = nb::steal(PyCapsule_New(&bytes->managed, capsule_name, delete_capsule));
  if (!capsule.is_valid()) throw nb::python_error();
  (void)bytes.release();
  return capsule;
}

}  // namespace tq::bind
