// An index with something of everything in it, as bytes that can be put back before each input.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/claim_judge.hpp"
#include "core/gate.hpp"
#include "core/index/index.hpp"
#include "fuzz/target.hpp"

namespace tq_fuzz {

inline constexpr std::uint64_t payload_nbytes = 1u << 26;
inline constexpr tq::OwnerId living_owner = 7;
inline constexpr tq::OwnerId dead_owner = 8;

class OpenGate : public tq::WriteGate {
  void enter() override {}
  void leave() noexcept override {}
};

class StillJudge : public tq::ClaimJudge {
  std::int64_t now_ns() const override { return 1000; }
  bool is_dead(tq::OwnerId owner) const override { return owner == dead_owner; }
};

class IndexFixture {
 public:
  IndexFixture();

  // The files as they were made. No index may be open.
  void restore() const;
  const std::string& directory() const { return directory_.path(); }
  std::string& data() { return data_; }  // the used part of data.mdb
  std::string& lock() { return lock_; }
  std::unique_ptr<tq::Index> open() { return std::make_unique<tq::Index>(directory_.path(), gate, judge); }

  OpenGate gate;
  StillJudge judge;

 private:
  void fill(tq::Index& index);
  ScratchDirectory directory_;
  std::string data_;
  std::string lock_;
  std::uint64_t data_nbytes_ = 0;
};

// Every call of the index, on what the fixture made; which of those that write come first is `order`'s.
void use_index(tq::Index& index, std::uint8_t order);

}  // namespace tq_fuzz
