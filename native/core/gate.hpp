// What the index enters around every write transaction. Stands alone so that memory/ (which implements it) and
// index/ (which uses it) need not know each other.
#pragma once

namespace tq {

class WriteGate {
 public:
  virtual ~WriteGate() = default;
  virtual void enter() = 0;  // throws Error(timeout) naming the holder
  virtual void leave() noexcept = 0;
};

}  // namespace tq
