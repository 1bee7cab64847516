// Bytes of the index's records. Keys are big-endian, so that LMDB's memcmp order is numeric order; values are
// little-endian. Nothing read from the index is trusted: every read is bounded and a short record is Error(corrupt).
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace tq::index {

static_assert(std::endian::native == std::endian::little, "values are stored in the order of the machine");

[[noreturn]] inline void corrupt(const std::string& what) {
  throw Error(ErrorCode::corrupt, "the index holds a record that does not parse (" + what +
                                      "); it was damaged from outside, end this session and start a new one");
}

template <std::unsigned_integral T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Reads a value front to back.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  template <std::unsigned_integral T>
  T number() {
    if (left() < sizeof(T)) corrupt("ends within a number");
    const T value = load<T>(at_);
    at_ += sizeof(T);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) corrupt("ends within a variable-length number");
      const auto byte = static_cast<unsigned char>(*at_++);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    corrupt("holds a number of more than 64 bits");
  }
  std::string_view bytes(std::uint64_t nbytes) {
    if (left() < nbytes) corrupt("ends within a string");
    const std::string_view value(at_, static_cast<std::size_t>(nbytes));
    at_ += nbytes;
    return value;
  }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  void expect_end() const {
    if (at_ != end_) corrupt("is longer than it says");
  }

 private:
  const char* at_;
  const char* end_;
};

// Builds a value; the buffer is reused between records.
class Writer {
 public:
  void clear() { bytes_.clear(); }
  template <std::unsigned_integral T>
  Writer& number(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
    return *this;
  }
  Writer& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  Writer& bytes(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  std::string_view view() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace tq::index
