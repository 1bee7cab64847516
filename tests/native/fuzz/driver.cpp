// Runs a fuzz target without libFuzzer: seeds, kept inputs, then mutations of both for so long.
//   fuzz_driver TARGET SECONDS [--inputs DIRECTORY] [--seed NUMBER]      fuzz_driver --list      fuzz_driver TARGET --replay FILE
// The input at hand is kept in <temporary directory>/tq-fuzz-<target>.input, so that it is there when the process dies.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/target.hpp"

namespace {

using namespace tq_fuzz;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string next(const std::vector<std::string>& pool) {
    std::string input = pool[at(pool.size())];
    for (std::size_t n = 1 + at(4); n > 0; --n) change(input, pool);
    if (input.size() > 4096) input.resize(4096);
    return input;
  }

 private:
  std::size_t at(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void change(std::string& input, const std::vector<std::string>& pool) {
    switch (at(7)) {
      case 0:
        if (!input.empty()) input[at(input.size())] = static_cast<char>(random_());
        return;
      case 1:
        if (!input.empty()) {
          char& byte = input[at(input.size())];
          byte = static_cast<char>(byte ^ (1 << at(8)));
        }
        return;
      case 2: input.resize(at(input.size() + 1)); return;
      case 3: {
        std::string fresh(1 + at(12), '\0');
        for (char& byte : fresh) byte = static_cast<char>(random_());
        input.insert(at(input.size() + 1), fresh);
        return;
      }
      case 4: {  // of two inputs one
        const std::string& other = pool[at(pool.size())];
        input = input.substr(0, at(input.size() + 1)) + other.substr(at(other.size() + 1));
        return;
      }
      case 5: {
        const std::string& other = pool[at(pool.size())];
        input += other;
        return;
      }
      default: {
        static constexpr std::uint64_t odd[] = {0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, ~std::uint64_t{0},
                                                std::uint64_t{1} << 62, std::uint64_t{1} << 63, 4096, 65536};
        const std::uint64_t number = odd[at(std::size(odd))];
        if (!input.empty()) {
          const std::size_t begin = at(input.size());
          std::memcpy(input.data() + begin, &number, std::min<std::size_t>(std::size_t{1} << at(4), input.size() - begin));
        }
        return;
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  remove_leftovers();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "--list") {
    for (const Target& target : targets()) std::puts(target.name.c_str());
    return 0;
  }
  const Target* target = words.size() >= 2 ? find_target(words[0]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "usage: fuzz_driver TARGET SECONDS [--inputs DIRECTORY] [--seed NUMBER] | TARGET --replay FILE | --list\n");
    return 2;
  }
  if (words[1] == "--replay" && words.size() == 3) {
    target->run(contents(words[2]));
    return 0;
  }
  const double seconds = std::strtod(words[1].c_str(), nullptr);
  std::uint64_t seed = 1;
  std::vector<std::string> pool = target->seeds();
  for (std::size_t i = 2; i + 1 < words.size(); i += 2) {
    if (words[i] == "--seed") seed = std::strtoull(words[i + 1].c_str(), nullptr, 10);
    if (words[i] == "--inputs" && std::filesystem::exists(words[i + 1])) {
      for (const auto& item : std::filesystem::directory_iterator(words[i + 1])) pool.push_back(contents(item.path()));
    }
  }
  if (pool.empty()) pool.emplace_back();
  const std::filesystem::path kept = std::filesystem::temp_directory_path() / ("tq-fuzz-" + target->name + "-" + std::to_string(::getpid()) + ".input");
  std::uint64_t executions = 0;
  const auto run = [&](const std::string& input) {
    std::ofstream(kept, std::ios::binary | std::ios::trunc) << input;
    target->run(input);
    ++executions;
  };
  for (const std::string& input : pool) run(input);
  Mutator mutator(seed);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) run(mutator.next(pool));
  std::filesystem::remove(kept);
  std::printf("%s: %llu executions, %zu inputs to begin with\n", target->name.c_str(), static_cast<unsigned long long>(executions), pool.size());
  return 0;
}
