// Whole columns of a get: what the codec asks of the core, one request a field, and what it gets back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tq {

enum class ColumnKind : std::uint8_t {
  dense = 0,   // rows of `unit_nbytes` each
  ragged = 1,  // rows of any whole number of units of `unit_nbytes`
  bytes = 2,   // rows of any size, one after another; the codec cuts them
};

struct ColumnRequest {
  std::size_t field = 0;  // in the resolution; every requested row has it
  ColumnKind kind = ColumnKind::dense;
  std::uint64_t unit_nbytes = 1;
};

// How bytes are handed out: copied, viewed on private pages, or viewed on the read-only mapping.
enum class ReadMode : std::uint8_t { copy, cow, shared };

struct Column {
  std::shared_ptr<void> data;  // null: the rows have no bytes. Owns mapping and lease, or the memory copied to
  std::uint64_t nbytes = 0;
  bool viewed = false;
  std::shared_ptr<std::int64_t[]> steps;  // ragged: where each row begins, in units; [rows + 1]
  std::int64_t shortest = 0;              // ragged: rows, in units
  std::int64_t longest = 0;
};

}  // namespace tq
