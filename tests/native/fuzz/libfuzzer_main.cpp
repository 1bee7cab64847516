// The entry points of libFuzzer. One program for all targets: TQ_FUZZ_TARGET says which, TQ_FUZZ_SEEDS where to write its seeds.
#include <fstream>

#include "fuzz/target.hpp"

namespace {
const tq_fuzz::Target* chosen = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("TQ_FUZZ_TARGET");
  chosen = tq_fuzz::find_target(name == nullptr ? "" : name);
  tq_fuzz::require(chosen != nullptr, "TQ_FUZZ_TARGET names no target");
  tq_fuzz::remove_leftovers();
  if (const char* directory = std::getenv("TQ_FUZZ_SEEDS")) {
    std::size_t number = 0;
    for (const std::string& seed : chosen->seeds()) {
      std::ofstream(std::string(directory) + "/seed-" + std::to_string(number++), std::ios::binary) << seed;
    }
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  chosen->run({reinterpret_cast<const char*>(data), nbytes});
  return 0;
}
