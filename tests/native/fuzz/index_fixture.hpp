// An index with something of everything in it, as bytes that can be put back before each input.
#pragma once

#include <functional>
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

  // More of what `restore` brings back. No index may be open.
  void add(const std::function<void(tq::Index&)>& more);
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
  void capture();
  ScratchDirectory directory_;
  std::string data_;
  std::string lock_;
  std::uint64_t data_nbytes_ = 0;
};

// A put of 64 KiB; none where the damage says that there is no room.
void put(tq::Index& index, const std::string& partition, tq::RowSelector rows, std::int64_t count, const std::vector<std::string>& names,
         std::vector<std::string> tag_maps = {}, bool create_rows = false, std::optional<std::uint64_t> elsewhere = std::nullopt);

// Every call of the index, on what the fixture made; which of those that write come first is `order`'s.
void use_index(tq::Index& index, std::uint8_t order);

}  // namespace tq_fuzz
