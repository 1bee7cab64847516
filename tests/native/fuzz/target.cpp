#include "fuzz/target.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace tq_fuzz {
namespace {

constexpr const char* base = "/dev/shm";
const std::string prefix = "tq-fuzz-";

}  // namespace

std::vector<Target>& targets() {
  static auto* all = new std::vector<Target>();
  return *all;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

ScratchDirectory::ScratchDirectory() : path_(std::string(base) + "/" + prefix + std::to_string(::getpid()) + "-XXXXXX") {
  require(::mkdtemp(path_.data()) != nullptr, "no directory for the fuzz target");
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void remove_leftovers() {
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(base, ignored)) {
    const std::string name = item.path().filename();
    if (!name.starts_with(prefix)) continue;
    const long pid = std::strtol(name.c_str() + prefix.size(), nullptr, 10);
    if (pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) std::filesystem::remove_all(item.path(), ignored);
  }
}

}  // namespace tq_fuzz
