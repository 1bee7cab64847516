#include "store/support.hpp"

using namespace tq_test;
using tq::ColumnKind;
using tq::ReadMode;

namespace {

constexpr std::uint64_t row_nbytes = 65536;

bool all_are(const tq::Column& column, int value) {
  const auto* bytes = static_cast<const std::byte*>(column.data.get());
  for (std::uint64_t i = 0; i < column.nbytes; ++i) {
    if (bytes[i] != static_cast<std::byte>(value)) return false;
  }
  return true;
}

tq::Column read(const std::shared_ptr<tq::Resolved>& resolved, ReadMode mode, std::uint64_t copy_below = 1) {
  const tq::ColumnRequest request{0, ColumnKind::dense, row_nbytes};
  return resolved->read({&request, 1}, mode, copy_below)[0];
}

}  // namespace

TEST_CASE("one stretch is viewed where that is wanted, and outlives the answer and the row") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto rows = put(*store, "p", fresh(4), 7).indexes;
  const auto resolved = store->resolve("p", by_index(rows), std::nullopt, true);
  CHECK(resolved->complete());
  tq::Column column = read(resolved, ReadMode::cow);
  CHECK(column.viewed);
  CHECK(column.nbytes == 4 * row_nbytes);
  CHECK_FALSE(read(resolved, ReadMode::copy).viewed);
  CHECK_FALSE(read(resolved, ReadMode::cow, 4 * row_nbytes + 1).viewed);
  CHECK(read(resolved, ReadMode::shared).viewed);
  resolved->release();
  store->clear_rows("p", by_index(rows));
  store->reclaim();
  CHECK(all_are(column, 7));
  CHECK(figure(*store, "leased_bytes") == 4 * row_nbytes);
  column = {};
  CHECK(figure(*store, "leased_bytes") == 0);
}

TEST_CASE("rows of several blocks are gathered, and the copy needs no lease") {
  const SessionDirectory session;
  const auto store = session.attach();
  auto rows = put(*store, "p", fresh(1), 7).indexes;
  rows.push_back(put(*store, "p", fresh(1), 7).indexes[0]);
  const auto resolved = store->resolve("p", by_index(rows), std::nullopt, true);
  const tq::Column column = read(resolved, ReadMode::cow);
  CHECK_FALSE(column.viewed);
  resolved->release();
  store->clear_rows("p", by_index(rows));
  put(*store, "p", fresh(2), 9);
  CHECK(all_are(column, 7));
  CHECK(code_of([&] { read(resolved, ReadMode::cow); }) == tq::ErrorCode::invalid);
}

TEST_CASE("an answer is complete when every row exists and has every field") {
  const SessionDirectory session;
  const auto store = session.attach();
  auto rows = put(*store, "p", fresh(2), 7).indexes;
  CHECK(store->resolve("p", by_index(rows), std::vector<std::string>{"a"}, false)->complete());
  CHECK_FALSE(store->resolve("p", by_index(rows), std::vector<std::string>{"a", "b"}, false)->complete());
  CHECK_FALSE(store->resolve("q", by_index(rows), std::nullopt, false)->complete());
  CHECK_FALSE(store->resolve("p", by_key({"k"}), std::nullopt, false)->complete());
  rows.push_back(rows.back() + 1);
  CHECK_FALSE(store->resolve("p", by_index(rows), std::vector<std::string>{"a"}, false)->complete());
}
