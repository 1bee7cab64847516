// numpy <-> std::vector. Results are fresh arrays that own their memory; arguments are copied before the GIL is given up.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace tq::bind {

template <typename T>
using Array = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;
template <typename T>
using Array2 = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<2>>;

// Arguments: any strides, read-only allowed. Declared noconvert, so that floats are refused instead of truncated.
using IndexesArgument = nanobind::ndarray<const std::int64_t, nanobind::ndim<1>, nanobind::device::cpu>;
using PiecesArgument = nanobind::ndarray<const std::int64_t, nanobind::shape<-1, 4>, nanobind::device::cpu>;

inline std::vector<std::int64_t> to_vector(const IndexesArgument& array) {
  std::vector<std::int64_t> result(array.shape(0));
  const std::int64_t* source = array.data();
  const std::int64_t stride = array.stride(0);  // in elements
  if (stride == 1 && !result.empty()) {
    std::memcpy(result.data(), source, result.size() * sizeof(std::int64_t));
    return result;
  }
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = source[static_cast<std::int64_t>(i) * stride];
  return result;
}

template <typename Result, typename T>
Result owning_array(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const std::size_t size = owned->size();
  const nanobind::capsule owner(owned.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  (void)owned.release();
  return Result(data, {size}, owner);
}

template <typename T>
Array<T> to_array(std::vector<T> values) {
  return owning_array<Array<T>>(std::move(values));
}

template <typename T>
Array<const T> to_read_only_array(std::vector<T> values) {
  return owning_array<Array<const T>>(std::move(values));
}

// Row-major.
template <typename T>
Array2<T> to_array2(std::vector<T> values, std::size_t rows, std::size_t columns) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const nanobind::capsule owner(owned.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  (void)owned.release();
  return Array2<T>(data, {rows, columns}, owner);
}

}  // namespace tq::bind
