// Threads of our own beside those of the program.
#pragma once

#include <functional>

namespace tq {

// Starts a detached thread, which the program's signals are not delivered to. False: there are no more threads to be had.
bool start_background_thread(const char* name, std::function<void()> work) noexcept;

}  // namespace tq
