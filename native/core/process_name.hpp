// A process as messages name it.
#pragma once

#include <string>

#include <sys/types.h>

namespace tq {

// "process 123 (python3, stopped)"; the number alone where the system tells no more. A thread's number gives its process.
std::string process_name(pid_t pid);

}  // namespace tq
