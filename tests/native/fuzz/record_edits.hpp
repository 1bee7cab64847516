// Records of an index, edited behind its back. LMDB itself stays in order.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/index/txn.hpp"
#include "fuzz/index_fixture.hpp"

namespace tq_fuzz {

struct Record {
  tq::index::Table table;  // of its database
  std::string key;
  std::string value;
};

// What of a fixture a target edits, and how.
class RecordEdits {
 public:
  using Wanted = bool (*)(const Record& record);
  using EditKey = void (*)(std::string& key, Input& in);
  // The records of the databases of `tables` that are `wanted`; up to `most` edits an input.
  RecordEdits(IndexFixture& fixture, std::vector<tq::index::Table> tables, Wanted wanted, EditKey edit_key, int most)
      : fixture_(fixture), tables_(std::move(tables)), wanted_(wanted), edit_key_(edit_key), most_(most) {}

  // How many records there are to edit.
  std::size_t count() const;
  // One commit of what the input says.
  void apply(Input& in) const;

 private:
  std::vector<Record> records(tq::index::Env& env, MDB_txn* txn) const;

  IndexFixture& fixture_;
  std::vector<tq::index::Table> tables_;
  Wanted wanted_;
  EditKey edit_key_;
  int most_;
};

}  // namespace tq_fuzz
