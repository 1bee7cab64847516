// The lease protocol, as it is compiled, in every order of its steps: readers, a retirer, and `reclaim` of somebody else.
#include "memory/every_order.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/memory/lease.hpp"
#include "core/memory/private_mapping.hpp"
#include "core/memory/retire.hpp"
#include "memory/support.hpp"

namespace tq_test::every_order_test {

using tq::BlockRef;
using tq::Span;

namespace {

constexpr Span place{1u << 20, 16384};
const std::vector<std::string> points{"lease.before_store",  "lease.before_recheck", "lease.before_release",
                                      "retire.before_scan", "lease_directory.listed"};

// What the index is here: the block of the row, what is listed as retired, and whose the extent is. One step each, as under the
// write lock.
struct Orders : Session {
  std::uint64_t generation = 0;
  BlockRef row;
  BlockRef listed;
  BlockRef owner;
  std::array<BlockRef, 2> reading{};
  std::set<std::string> seen;  // outcomes over all orders
  std::string outcome;
  std::array<std::shared_ptr<tq::LeaseFile>, 2> files{leases, new_client()};
  // Each plays a process: the directory of one is never used by two at once.
  std::array<std::unique_ptr<tq::LeaseDirectory>, 2> directories{
      std::make_unique<tq::LeaseDirectory>(lease_path, control), std::make_unique<tq::LeaseDirectory>(lease_path, control)};

  static unsigned char value_of(BlockRef block) { return static_cast<unsigned char>(1 + block.generation() % 250); }
  BlockRef make() {
    const BlockRef block = BlockRef::make(++generation, 0);
    make_block(block, place, value_of(block));
    return block;
  }

  void prepare() {
    outcome.clear();
    row = owner = make();
    listed = {};
  }

  void read(std::size_t i) {
    const BlockRef block = row;
    if (!block) return note("nothing there");
    auto held = tq::lease_blocks(*table, files[i], std::vector{block});
    if (!held) return note("turned away");
    reading[i] = block;
    const auto view = tq::PrivateMapping::map(payload, place, held->at(0));
    held.reset();
    for (int look = 0; look < 2; ++look) {
      CHECK(all_equal(view->at(0, place.nbytes), place.nbytes, value_of(block)));
      EveryOrder::step();
    }
    reading[i] = {};
    note("read");
  }

  void clear() {
    listed = row;
    row = {};
    EveryOrder::step();  // retire.after_commit
    retire(0, listed);
  }

  void reclaim() {
    const BlockRef block = listed;
    if (!block) return;
    EveryOrder::step();
    retire(1, block);
  }

  void retire(std::size_t i, BlockRef block) {
    if (!block) return;
    const auto unleased = tq::unleased_of_retired(*table, *directories[i], std::vector{block});
    EveryOrder::step();  // retire.after_word
    if (unleased.empty()) return note("kept");
    if (listed != block) return note("freed by another");
    CHECK(owner == block);
    CHECK(std::find(reading.begin(), reading.end(), block) == reading.end());
    listed = {};
    owner = {};
    EveryOrder::step();  // committed: from here on somebody else may have it
    if (!owner) {
      owner = make();  // and has
      row = owner;
    }
    EveryOrder::step();
    table->set_free(block);
    CHECK(table->is_live(owner));
    note("freed");
  }

  void note(const std::string& what) {
    if (!outcome.empty()) outcome += ", ";
    outcome += what;
  }

  // Whatever the order was: what is listed can be freed now, and the rest is as it should be.
  void judge() {
    seen.insert(outcome);
    CHECK(files[0]->held() == 0);
    CHECK(files[1]->held() == 0);
    if (listed) CHECK(tq::unleased_of_retired(*table, *directories[0], std::vector{listed}) == std::vector{listed});
    if (row) CHECK(table->is_live(row));
    CHECK((owner == row || owner == listed));
  }

  std::uint64_t run(EveryOrder& order, const std::vector<std::function<void()>>& works) {
    return order.run([this] { prepare(); }, works, [this] { judge(); });
  }
};

}  // namespace

TEST_CASE("a reader and a retirer that reuses what it frees, in every order") {
  Orders orders;
  EveryOrder order(points);
  const std::uint64_t count = orders.run(order, {[&] { orders.read(0); }, [&] { orders.clear(); }});
  MESSAGE(count << " orders, " << orders.seen.size() << " outcomes");
  CHECK(count > 100);
  for (const char* outcome : {"read, freed", "freed, read", "freed, turned away", "turned away, freed", "kept, read", "read, kept",
                              "nothing there, freed", "kept, turned away"}) {
    CAPTURE(outcome);
    CHECK(orders.seen.contains(outcome));
  }
}

TEST_CASE("two retirers and a reader: the second transaction finds out who was first") {
  Orders orders;
  EveryOrder order(points, 2);
  const std::uint64_t count =
      orders.run(order, {[&] { orders.read(0); }, [&] { orders.clear(); }, [&] { orders.reclaim(); }});
  MESSAGE(count << " orders, " << orders.seen.size() << " outcomes");
  CHECK(count > 100);
  bool raced = false;
  for (const std::string& outcome : orders.seen) raced = raced || outcome.find("freed by another") != std::string::npos;
  CHECK(raced);
}

TEST_CASE("two readers and a retirer") {
  Orders orders;
  EveryOrder order(points, 2);
  const std::uint64_t count =
      orders.run(order, {[&] { orders.read(0); }, [&] { orders.read(1); }, [&] { orders.clear(); }});
  MESSAGE(count << " orders, " << orders.seen.size() << " outcomes");
  CHECK(count > 100);
}

}  // namespace tq_test::every_order_test
