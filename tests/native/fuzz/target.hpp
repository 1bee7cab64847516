// What every fuzz target shares: how it is found, how it reads its input, and which errors it may end in.
//
// A target is a function of one byte string, the same for libFuzzer (libfuzzer_main.cpp, built by clang) and for the mutating
// driver of its own (driver.cpp, built by any compiler). Most inputs are lists of edits of something that the real encoders
// made: bytes that nobody wrote are refused by the first check, and a damaged session is what there is in life.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace tq_fuzz {

struct Target {
  std::string name;
  std::function<void(std::string_view input)> run;
  std::function<std::vector<std::string>()> seeds;
};

std::vector<Target>& targets();  // filled by `Registration`s
const Target* find_target(std::string_view name);

struct Registration {
  Registration(const char* name, std::function<void(std::string_view)> run, std::function<std::vector<std::string>()> seeds) {
    targets().push_back({name, std::move(run), std::move(seeds)});
  }
};

// Reads an input front to back; beyond its end everything is 0.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  template <class T>
  T number() {
    T value{};
    const std::size_t n = std::min(sizeof value, bytes_.size());
    std::memcpy(&value, bytes_.data(), n);
    bytes_.remove_prefix(n);
    return value;
  }
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : number<std::uint16_t>() % limit; }
  std::string_view bytes(std::size_t nbytes) {
    const std::string_view value = bytes_.substr(0, nbytes);
    bytes_.remove_prefix(value.size());
    return value;
  }
  std::string_view rest() { return bytes(bytes_.size()); }
  // A number as damage makes them: near nothing, near a power of two, near the end of a type, or any.
  std::uint64_t odd_number() {
    const auto kind = number<std::uint8_t>();
    const auto small = number<std::uint8_t>();
    switch (kind % 6) {
      case 0: return small;
      case 1: return ~std::uint64_t{0} - small;
      case 2: return (std::uint64_t{1} << (small % 64)) - 1;
      case 3: return std::uint64_t{1} << (small % 64);
      case 4: return number<std::uint16_t>();
      default: return number<std::uint64_t>();
    }
  }

 private:
  std::string_view bytes_;
};

// One change of a string: bytes flipped, numbers overwritten, cut, grown.
inline void edit(std::string& value, Input& in) {
  const auto kind = in.number<std::uint8_t>() % 7;
  const std::size_t at = in.below(value.size() + 1);
  switch (kind) {
    case 0:
      if (at < value.size()) value[at] = static_cast<char>(in.number<std::uint8_t>());
      return;
    case 1:
      if (at < value.size()) value[at] = static_cast<char>(value[at] ^ (1 << in.number<std::uint8_t>() % 8));
      return;
    case 2: value.resize(at); return;
    case 3: value.insert(at, in.bytes(in.below(32))); return;
    default: {
      const std::uint64_t number = in.odd_number();
      const std::size_t nbytes = kind == 4 ? 2 : kind == 5 ? 4 : 8;
      std::memcpy(value.data() + at, &number, std::min(nbytes, value.size() - at));
      return;
    }
  }
}

// Calls; damage may end it in Error(corrupt) or Error(layout_mismatch), and in what an undamaged session may answer too.
template <class Call>
void typed(const char* what, Call&& call, bool may_be_invalid = false) {
  try {
    call();
  } catch (const tq::Error& error) {
    switch (error.code) {
      case tq::ErrorCode::system:
      case tq::ErrorCode::closed:
        break;
      case tq::ErrorCode::invalid:
        if (may_be_invalid) return;
        break;
      default:
        return;
    }
    std::fprintf(stderr, "%s ended in an error of code %d: %s\n", what, static_cast<int>(error.code), error.what());
    std::abort();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s ended in %s\n", what, error.what());
    std::abort();
  }
}

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// An input of an edit list is small numbers one after another: `parts` as bytes.
class InputWriter {
 public:
  template <class T>
  InputWriter& number(T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof value);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A directory on tmpfs, gone with the process (of a crashed one: `remove_leftovers` of the next).
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
void remove_leftovers();

}  // namespace tq_fuzz
