#include "core/memory/stream_copy.hpp"

#include <cstring>

#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers see memcpy, not these
#include <emmintrin.h>
#define TQ_STREAM 1
#endif

namespace tq {

#ifdef TQ_STREAM

namespace {
constexpr std::uint64_t line = 64;
constexpr std::uint64_t ahead = 16 * line;  // the hardware's own prefetch stops at pages
}  // namespace

void stream_copy(std::byte* destination, const std::byte* source, std::uint64_t nbytes) noexcept {
  const std::uint64_t head = (line - reinterpret_cast<std::uintptr_t>(destination) % line) % line;
  if (nbytes < head + line) {
    std::memcpy(destination, source, nbytes);
    return;
  }
  std::memcpy(destination, source, head);
  std::uint64_t at = head;
  for (; at + line <= nbytes; at += line) {
    _mm_prefetch(reinterpret_cast<const char*>(source + at + ahead), _MM_HINT_NTA);  // of any address: never faults
    const auto* from = reinterpret_cast<const __m128i*>(source + at);
    auto* to = reinterpret_cast<__m128i*>(destination + at);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(destination + at, source + at, nbytes - at);
}

void stream_fence() noexcept { _mm_sfence(); }

#else

void stream_copy(std::byte* destination, const std::byte* source, std::uint64_t nbytes) noexcept {
  std::memcpy(destination, source, nbytes);
}

void stream_fence() noexcept {}

#endif

}  // namespace tq
