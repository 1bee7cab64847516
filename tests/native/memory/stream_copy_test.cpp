#include "core/memory/stream_copy.hpp"

#include "memory/support.hpp"

TEST_CASE("every alignment and length is copied, and nothing beside it") {
  constexpr std::size_t guard = 64;
  std::vector<std::byte> source(1024);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::byte(i * 7 + i / 256 + 1);
  bool right = true;
  for (std::size_t to = 0; to < 65; ++to) {
    for (const std::size_t from : {0u, 1u, 16u, 63u}) {
      for (const std::size_t nbytes : {0u, 1u, 15u, 63u, 64u, 65u, 127u, 128u, 130u, 191u, 500u}) {
        std::vector<std::byte> destination(guard + 65 + 500 + guard, std::byte{0xee});
        std::vector<std::byte> expected = destination;
        tq::stream_copy(destination.data() + guard + to, source.data() + from, nbytes);
        tq::stream_fence();
        if (nbytes > 0) std::memcpy(expected.data() + guard + to, source.data() + from, nbytes);
        right = right && destination == expected;
      }
    }
  }
  CHECK(right);
}
