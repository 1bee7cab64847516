// Records of a whole index, edited behind its back: then every call of it. LMDB itself is in order.
#include "fuzz/record_edits.hpp"

namespace {

using namespace tq_fuzz;
using tq::index::Table;

IndexFixture& fixture() {
  static IndexFixture instance;
  return instance;
}

RecordEdits edits() {
  return {fixture(), {Table::format, Table::tasks, Table::blocks, Table::runs, Table::rowinfo, Table::key_rows},
          [](const Record&) { return true; }, [](std::string& key, Input& in) { edit(key, in); }, 16};
}

void run(std::string_view input) {
  IndexFixture& made = fixture();
  made.restore();
  Input in(input);
  const auto order = in.number<std::uint8_t>();
  edits().apply(in);
  std::unique_ptr<tq::Index> index;
  typed("open", [&] { index = made.open(); });
  if (index) use_index(*index, order);
}

// Each record damaged once in each of a few ways.
std::vector<std::string> seeds() {
  IndexFixture& made = fixture();
  made.restore();
  const std::size_t n = edits().count();
  std::vector<std::string> all = {{}};
  for (std::size_t i = 0; i < n; ++i) {
    const auto record = static_cast<std::uint16_t>(i);
    const auto byte = [](std::size_t value) { return static_cast<std::uint8_t>(value); };
    all.push_back(InputWriter().number(byte(i)).number(record).number(byte(0)).bytes());
    all.push_back(InputWriter().number(byte(i)).number(record).number(byte(7)).number(byte(6)).number(static_cast<std::uint16_t>(8 * (i % 4)))
                      .number(byte(1 + i % 3)).number(byte(62)).bytes());
    all.push_back(InputWriter().number(byte(i)).number(record).number(byte(7)).number(byte(2)).number(static_cast<std::uint16_t>(7)).bytes());
  }
  return all;
}

const Registration registration("index", run, seeds);

}  // namespace
