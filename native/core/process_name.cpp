#include "core/process_name.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tq {
namespace {

const char* state_name(char state) {
  switch (state) {
    case 'T': return ", stopped";
    case 't': return ", stopped by a debugger";
    case 'Z': return ", dead and not waited for";
    case 'D': return ", in an uninterruptible wait";
    default: return "";
  }
}

std::string read_status(pid_t pid) {
  char text[4096];
  const int fd = ::open(("/proc/" + std::to_string(pid) + "/status").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : std::string();
}

std::string_view value_of(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = status.substr(at + name.size());
  return rest.substr(0, rest.find('\n'));
}

}  // namespace

std::string process_name(pid_t pid) {
  const std::string status = read_status(pid);
  const std::string_view name = value_of(status, "Name:\t");
  const std::string_view state = value_of(status, "\nState:\t");
  const std::string group(value_of(status, "\nTgid:\t"));
  const long process = group.empty() ? 0 : std::strtol(group.c_str(), nullptr, 10);
  const std::string number = "process " + std::to_string(process > 0 ? process : static_cast<long>(pid));
  if (name.empty()) return number;
  return number + " (" + std::string(name) + (state.empty() ? "" : state_name(state.front())) + ")";
}

}  // namespace tq
