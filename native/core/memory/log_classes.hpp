// Classes of whole numbers that grow with the number: 2^sub_bits of them to each power of two, so a number read back from its
// class is at most 1 / 2^sub_bits too high. Numbers below 2^sub_bits have a class each.
#pragma once

#include <bit>
#include <cstdint>

namespace tq {

template <unsigned sub_bits>
struct LogClasses {
  static constexpr unsigned count = (64 - sub_bits + 1) << sub_bits;

  static constexpr unsigned class_of(std::uint64_t number) noexcept {
    if (number < exact) return static_cast<unsigned>(number);
    const unsigned shift = static_cast<unsigned>(std::bit_width(number)) - 1 - sub_bits;
    return ((shift + 1) << sub_bits) + static_cast<unsigned>((number >> shift) & (exact - 1));
  }
  // The largest number of a class.
  static constexpr std::uint64_t largest_of(unsigned index) noexcept {
    if (index < exact) return index;
    const unsigned shift = (index >> sub_bits) - 1;
    return ((std::uint64_t{exact + (index & (exact - 1))} + 1) << shift) - 1;
  }

 private:
  static constexpr unsigned exact = 1u << sub_bits;
};

}  // namespace tq
