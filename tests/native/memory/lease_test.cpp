// The lease protocol: forced interleavings first, then a race of many readers against a retirer that reuses what it frees.
#include "memory/support.hpp"

#include <random>

#include "core/memory/lease.hpp"
#include "core/memory/private_mapping.hpp"
#include "core/memory/retire.hpp"

namespace tq_test::lease_test {

using tq::BlockRef;
using tq::Span;

namespace {

constexpr Span span_of(std::uint32_t slot) { return {std::uint64_t{slot} * 65536, 65536}; }

std::vector<BlockRef> retire(Session& session, BlockRef block) {
  return tq::unleased_of_retired(*session.table, *session.clients, std::vector{block});
}

}  // namespace

TEST_CASE("a leased block is not freed; when the last copy of its lease dies it is") {
  Session session;
  const BlockRef block = BlockRef::make(1, 0);
  session.make_block(block, span_of(0), 1);
  auto held = tq::lease_blocks(*session.table, session.leases, std::vector{block});
  REQUIRE(held.has_value());
  tq::BlockLease copy = held->at(0);
  CHECK(copy.block() == block);
  CHECK(copy.valid());
  CHECK(retire(session, block).empty());
  held.reset();
  CHECK(retire(session, block).empty());
  copy.reset();
  CHECK(retire(session, block) == std::vector{block});
}

TEST_CASE("one dead block among many drops all leases") {
  Session session;
  std::vector<BlockRef> blocks;
  for (std::uint32_t slot = 0; slot < 10; ++slot) {
    blocks.push_back(BlockRef::make(1, slot));
    session.make_block(blocks.back(), span_of(slot), 1);
  }
  REQUIRE(tq::lease_blocks(*session.table, session.leases, blocks).has_value());
  CHECK(session.leases->held() == 0);
  session.table->set_retired(blocks[7]);
  CHECK_FALSE(tq::lease_blocks(*session.table, session.leases, blocks).has_value());
  CHECK(session.leases->held() == 0);
  CHECK(tq::lease_blocks(*session.table, session.leases, {}).has_value());
}

TEST_CASE("reuse between resolve and lease: the reader finds out") {
  Session session;
  const BlockRef block = BlockRef::make(1, 0);
  session.make_block(block, span_of(0), 1);
  tq::arm_pause("lease.before_store", tq::PauseAction::stop);
  std::optional<std::vector<tq::BlockLease>> held;
  std::thread reader([&] { held = tq::lease_blocks(*session.table, session.leases, std::vector{block}); });
  REQUIRE(eventually([] { return tq::is_paused("lease.before_store"); }));
  // The block is retired, freed, and its slot and bytes are given to another one, all while the reader sleeps.
  REQUIRE(retire(session, block) == std::vector{block});
  session.table->set_free(block);
  session.make_block(BlockRef::make(2, 0), span_of(0), 2);
  tq::resume_pause("lease.before_store");
  reader.join();
  CHECK_FALSE(held.has_value());
  CHECK(session.leases->held() == 0);
}

TEST_CASE("retired between store and re-read: neither frees nor reads") {
  Session session;
  const BlockRef block = BlockRef::make(1, 0);
  session.make_block(block, span_of(0), 1);
  tq::arm_pause("lease.before_recheck", tq::PauseAction::stop);
  std::optional<std::vector<tq::BlockLease>> held;
  std::thread reader([&] { held = tq::lease_blocks(*session.table, session.leases, std::vector{block}); });
  REQUIRE(eventually([] { return tq::is_paused("lease.before_recheck"); }));
  CHECK(retire(session, block).empty());  // the claim is seen
  tq::resume_pause("lease.before_recheck");
  reader.join();
  CHECK_FALSE(held.has_value());  // the word is seen
  CHECK(retire(session, block) == std::vector{block});
}

TEST_CASE("leased after the word was set and before the scan: the reader gives way") {
  Session session;
  const BlockRef block = BlockRef::make(1, 0);
  session.make_block(block, span_of(0), 1);
  tq::arm_pause("retire.before_scan", tq::PauseAction::stop);
  std::vector<BlockRef> freed;
  std::thread retirer([&] { freed = retire(session, block); });
  REQUIRE(eventually([] { return tq::is_paused("retire.before_scan"); }));
  CHECK_FALSE(tq::lease_blocks(*session.table, session.leases, std::vector{block}).has_value());
  tq::resume_pause("retire.before_scan");
  retirer.join();
  CHECK(freed == std::vector{block});
}

TEST_CASE("retiring is idempotent over processes, and a block freed by somebody else is left out") {
  Session session;
  const BlockRef block = BlockRef::make(1, 0);
  session.make_block(block, span_of(0), 1);
  // One process commits, sets the word and dies before it scans.
  CHECK(in_child([&] {
          tq::arm_pause("retire.before_scan", tq::PauseAction::kill);
          retire(session, block);
          return 0;
        }) == -SIGKILL);
  CHECK(retire(session, block) == std::vector{block});
  session.table->set_free(block);
  session.make_block(BlockRef::make(2, 0), span_of(0), 2);
  CHECK(retire(session, block).empty());
  CHECK(session.table->is_live(BlockRef::make(2, 0)));
}

TEST_CASE("an own block can be leased before it is published") {
  Session session;
  const BlockRef block = BlockRef::make(1, 0);
  session.make_block(block, span_of(0), 1);
  tq::BlockLease lease = tq::lease_own_block(session.leases, block);
  CHECK(lease.valid());
  CHECK(retire(session, block).empty());
  lease.reset();
  CHECK(retire(session, block) == std::vector{block});
}

namespace {

// What the index is in the race below: which block each slot holds now. Lies in the payload, so that children share it.
constexpr std::uint32_t race_slots = 8;
struct RaceIndex {
  std::atomic<std::uint64_t> current[race_slots];
  std::atomic<bool> stop;
};
RaceIndex& race_index(const Session& session) {
  return *reinterpret_cast<RaceIndex*>(session.payload->writable({7u << 20, sizeof(RaceIndex)}));
}
constexpr Span race_span(std::uint32_t slot) { return {std::uint64_t{slot} * 8192, 8192}; }
unsigned char value_of(BlockRef block) { return static_cast<unsigned char>(1 + block.generation() % 250); }

// Reads random slots until told to stop. 0: every block it leased held its own bytes all the time.
int read_until_stopped(const Session& session, const std::shared_ptr<tq::LeaseFile>& leases, unsigned seed,
                       std::atomic<std::uint64_t>* reads) {
  const RaceIndex& index = race_index(session);
  std::mt19937 random(seed);
  while (!index.stop.load(std::memory_order_relaxed)) {
    std::vector<BlockRef> blocks;
    for (int i = 0; i < 3; ++i) {
      const BlockRef block{index.current[random() % race_slots].load(std::memory_order_acquire)};
      if (block) blocks.push_back(block);
    }
    auto held = tq::lease_blocks(*session.table, leases, blocks);
    if (!held) continue;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Span span = race_span(blocks[i].slot());
      for (int again = 0; again < 2; ++again) {
        if (!all_equal(session.payload->readable(span), span.nbytes, value_of(blocks[i]))) return 1;
      }
      if (random() % 8 == 0) {
        const auto view = tq::PrivateMapping::map(session.payload, span, (*held)[i]);
        if (random() % 2 == 0) (*held)[i].reset();  // the view alone keeps the block
        if (!all_equal(view->at(0, span.nbytes), span.nbytes, value_of(blocks[i]))) return 2;
        std::memset(view->at(0, span.nbytes), 255, span.nbytes);  // copy on write: reaches nobody
      }
    }
    if (reads != nullptr) reads->fetch_add(1, std::memory_order_relaxed);
  }
  return 0;
}

}  // namespace

TEST_CASE("race: a freed block never has a reader, a leased one is never reused") {
  Session session;
  RaceIndex& index = race_index(session);
  std::atomic<std::uint64_t> reads{0};
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 2; ++i) {
    children.push_back(start_child([&session, i] { return read_until_stopped(session, session.new_client(), 100 + i, nullptr); }));
  }
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < 2; ++i) {
    readers.emplace_back([&, i] { CHECK(read_until_stopped(session, session.leases, i, &reads) == 0); });
  }

  std::vector<BlockRef> retired;  // committed as retired, not yet freed
  std::vector<std::uint32_t> free_slots;
  for (std::uint32_t slot = 0; slot < race_slots; ++slot) free_slots.push_back(slot);
  std::uint64_t generation = 0;
  std::uint64_t freed = 0;
  std::mt19937 random(7);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < end || reads.load() < 50 || freed < 50) {
    for (const std::uint32_t slot : free_slots) {
      const BlockRef block = BlockRef::make(++generation, slot);
      session.make_block(block, race_span(slot), value_of(block));
      index.current[slot].store(block.word, std::memory_order_release);  // the commit
    }
    free_slots.clear();
    if (const std::uint32_t slot = static_cast<std::uint32_t>(random() % race_slots); index.current[slot].load() != 0) {
      retired.push_back(BlockRef{index.current[slot].exchange(0)});  // the commit that removes the last cell
    }
    for (const BlockRef block : tq::unleased_of_retired(*session.table, *session.clients, retired)) {
      const Span span = race_span(block.slot());
      std::memset(session.payload->writable(span), 0, span.nbytes);  // whoever still reads it would notice
      session.table->set_free(block);
      free_slots.push_back(block.slot());
      std::erase(retired, block);
      ++freed;
    }
  }
  index.stop.store(true);
  for (auto& reader : readers) reader.join();
  for (const pid_t child : children) CHECK(finish(child) == 0);
  MESSAGE("blocks freed under readers: " << freed << ", reads in this process: " << reads.load());
  // Nothing is left leased: all that was retired can go now.
  CHECK(tq::unleased_of_retired(*session.table, *session.clients, retired).size() == retired.size());
}

TEST_CASE("crash: readers killed anywhere leave no block leased") {
  Session session;
  RaceIndex& index = race_index(session);
  std::vector<BlockRef> blocks;
  for (std::uint32_t slot = 0; slot < race_slots; ++slot) {
    blocks.push_back(BlockRef::make(1, slot));
    session.make_block(blocks.back(), race_span(slot), value_of(blocks.back()));
    index.current[slot].store(blocks.back().word);
  }
  const char* points[] = {"lease.before_store", "lease.before_recheck", "view.before_map", "view.before_unmap",
                          "view.unmapped",      "lease.before_release", "lease_file.locked"};
  int round = 0;
  for (const char* point : points) {
    for (int after : {0, 1, 7}) {
      const int code = in_child([&] {
        tq::arm_pause(point, tq::PauseAction::kill, point == std::string("lease_file.locked") ? 0 : after);
        return read_until_stopped(session, session.new_client(), static_cast<unsigned>(++round), nullptr);
      });
      CHECK(code == -SIGKILL);
    }
  }
  CHECK(tq::unleased_of_retired(*session.table, *session.clients, blocks).size() == blocks.size());
  for (const tq::ClientInfo& client : session.clients->dead()) session.clients->remove(client.owner);
  CHECK(session.lease_files() == 1);
  for (const BlockRef block : blocks) {
    CHECK(all_equal(session.payload->readable(race_span(block.slot())), 8192, value_of(block)));
  }
}

}  // namespace tq_test::lease_test
