#include "core/index/layout.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::index::Env;
using tq::index::FieldNames;
using tq::index::LayoutCache;
using tq::index::ReadTxn;

namespace {

const std::vector<std::string> fields = {"a", "b", "c", "d"};

// What a process that reads blocks of one row does: `keep` of them live at once, the oldest is cleared.
struct Reader {
  void read(BlockRef block) {
    const ReadTxn txn(*env);
    const auto parsed = layouts.blocks(txn, names, {block});
    REQUIRE(parsed.size() == 1);
    CHECK(parsed.front()->ref == block);
    CHECK(parsed.front()->layouts.size() == fields.size());
  }

  std::shared_ptr<Env> env;
  FieldNames names;
  LayoutCache layouts;
};

}  // namespace

TEST_CASE("layouts of blocks that are gone are not kept, however many were read; those of blocks that stay are") {
  Session session;
  Index& index = *session.index;
  Reader reader{Env::open(session.directory.path()), {}, {}};
  constexpr std::size_t n_stay = 300;  // read once, at the beginning: the looks must go past them
  constexpr std::size_t n_live = 30;
  const std::size_t bound = LayoutCache::min_fields + 4 * (n_stay + n_live) * fields.size();
  REQUIRE(bound < LayoutCache::max_fields / 2);
  std::vector<BlockRef> stay(n_stay);
  for (BlockRef& block : stay) {
    put(index, "stays", fresh(1), fields, {}, &block);
    reader.read(block);
  }
  std::size_t most = 0;
  for (std::int64_t step = 0; step < 6000; ++step) {  // 24,000 fields
    BlockRef block;
    const PublishResult made = put(index, "p", fresh(1), fields, {}, &block);
    reader.read(block);
    most = std::max(most, reader.layouts.n_fields());
    const RowIndex oldest = made.indexes.front() - static_cast<RowIndex>(n_live);
    if (step >= static_cast<std::int64_t>(n_live)) index.clear_rows("p", by_index({oldest}));
  }
  CHECK(most > LayoutCache::min_fields);
  CHECK(most < bound);
  // Whether kept or not, what lives is there to be read.
  for (const BlockRef block : stay) reader.read(block);
  CHECK(reader.layouts.n_fields() >= n_stay * fields.size());
}

TEST_CASE("blocks that live are all kept, up to the bound") {
  Session session;
  Index& index = *session.index;
  Reader reader{Env::open(session.directory.path()), {}, {}};
  std::vector<BlockRef> blocks(2000);
  for (BlockRef& block : blocks) put(index, "p", fresh(1), fields, {}, &block);
  for (const BlockRef block : blocks) reader.read(block);
  CHECK(reader.layouts.n_fields() == blocks.size() * fields.size());
}
