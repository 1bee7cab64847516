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

// Inside the gate while it lives.
class GateHold {
 public:
  explicit GateHold(WriteGate& gate) : gate_(gate) { gate_.enter(); }
  ~GateHold() { gate_.leave(); }
  GateHold(const GateHold&) = delete;
  GateHold& operator=(const GateHold&) = delete;

 private:
  WriteGate& gate_;
};

}  // namespace tq
