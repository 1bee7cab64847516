// Whether the files of an index are what LMDB takes them for. LMDB follows page numbers and offsets that it finds in its file
// without a look: one flipped bit in a page header is a stray read of the process that meets it. So whoever opens an index has
// it walked once. What is damaged afterwards, under an open environment, is not found here (docs/reliability.md, section 7).
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <string>

namespace tq::index {

// Before LMDB opens anything: what it divides by and indexes with. Error(corrupt); Error(layout_mismatch) for a file of another
// version of LMDB. Opens lock.mdb, so only while no environment of this process is on it (env.hpp).
void check_files(const std::string& directory);

// Every page of the snapshot that `txn` reads: its place, its header, its nodes, the depth and the counts of each tree, and that
// no page is reached twice or is listed as free. About 1 us a page. Error(corrupt).
void check_trees(MDB_txn* txn, const std::string& directory);

}  // namespace tq::index
