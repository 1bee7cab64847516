#include "memory/support.hpp"

#include "core/memory/mapping_budget.hpp"
#include "core/memory/producer_mapping.hpp"
#include "core/memory/retire.hpp"

namespace tq_test::producer_mapping_test {

using tq::BlockRef;
using tq::PendingExtent;
using tq::Span;

namespace {

constexpr BlockRef block = BlockRef::make(1, 3);
constexpr Span span{1u << 20, 256u << 10};

struct Producer {
  Session& session;
  std::shared_ptr<tq::GiveBackQueue> queue = std::make_shared<tq::GiveBackQueue>();
  std::shared_ptr<tq::ProducerMapping> mapping =
      tq::ProducerMapping::map(session.payload, PendingExtent{span, block, session.leases->owner()}, queue);

  explicit Producer(Session& session) : session(session) {}
  std::vector<PendingExtent> given_back() { return queue->drain(session.leases->owner()); }
  void seal() {
    session.table->ensure(block);
    session.table->set_live(block);
    mapping->seal(tq::lease_own_block(session.leases, block));
  }
};

std::vector<BlockRef> retire(Session& session) { return tq::unleased_of_retired(*session.table, *session.clients, std::vector{block}); }

// A producer that does not stop writing at commit. Not instrumented: the thread sanitizer takes the remap for a write to the
// same bytes, and a user's write that races with it is exactly what is tested.
__attribute__((no_sanitize("thread"))) void write_until(const std::atomic<bool>& stop, volatile std::byte* data) {
  for (std::uint32_t i = 1; !stop; ++i) {
    for (std::size_t at = 0; at < span.nbytes; at += 512) data[at] = std::byte(i & 0xff);
  }
}

bool stored(const Session& session, std::uint64_t offset, std::size_t n, unsigned char value) {
  return all_equal(session.payload->readable(span) + offset, n, value);
}

}  // namespace

TEST_CASE("a producer writes straight into the segment") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(4'096, 8'192);
  CHECK(producer.mapping->tensors_alive() == 1);
  std::memset(tensor.get(), 7, 8'192);
  CHECK(stored(session, 4'096, 8'192, 7));
  auto copy = tensor;  // the same tensor, for torch one storage
  CHECK(producer.mapping->tensors_alive() == 1);
  tensor.reset();
  CHECK(producer.mapping->tensors_alive() == 1);
  copy.reset();
  CHECK(producer.mapping->tensors_alive() == 0);
  CHECK(producer.mapping->abandon());
}

TEST_CASE("sealed with tensors alive: earlier writes are stored, later ones reach nobody") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(0, span.nbytes);
  std::memset(tensor.get(), 7, span.nbytes);
  producer.seal();
  std::memset(tensor.get(), 8, span.nbytes / 2);
  CHECK(stored(session, 0, span.nbytes, 7));
  CHECK(all_equal(tensor.get(), span.nbytes / 2, 8));
  CHECK(all_equal(tensor.get() + span.nbytes / 2, span.nbytes / 2, 7));
  // It became a view: the block is leased until it dies, and its end gives nothing back.
  CHECK(retire(session).empty());
  tensor.reset();
  CHECK(session.leases->held() == 0);
  CHECK(retire(session) == std::vector{block});
  CHECK(producer.given_back().empty());
  producer.mapping.reset();
  CHECK(producer.given_back().empty());
}

TEST_CASE("sealed without tensors: kept for the next producer of the extent, no lease kept") {
  Session session;
  Producer producer(session);
  const std::int64_t mappings = tq::mapping_budget::alive();
  producer.mapping->tensor(0, 100).reset();
  producer.seal();
  CHECK(tq::mapping_budget::alive() == mappings);
  CHECK(session.payload->kept_shared().count() == 1);
  CHECK(session.payload->kept().count() == 0);  // a view never gets it
  CHECK(session.leases->held() == 0);
  producer.mapping->seal({});  // again: nothing
  CHECK(error_of([&] { producer.mapping->tensor(0, 1); }).code == tq::ErrorCode::invalid);
  producer.mapping.reset();
  CHECK(producer.given_back().empty());
}

TEST_CASE("a kept mapping is the next producer's, and shows what others stored meanwhile") {
  Session session;
  std::byte* address = nullptr;
  {
    Producer producer(session);
    auto tensor = producer.mapping->tensor(0, span.nbytes);
    std::memset(tensor.get(), 7, span.nbytes);
    address = tensor.get();
    tensor.reset();
    producer.seal();
  }
  std::memset(session.payload->writable(span), 9, span.nbytes);  // a put into the same extent, of whatever process
  const std::int64_t mappings = tq::mapping_budget::alive();
  Producer next(session);
  auto tensor = next.mapping->tensor(0, span.nbytes);
  CHECK(tensor.get() == address);
  CHECK(tq::mapping_budget::alive() == mappings);
  CHECK(session.payload->kept_shared().count() == 0);
  CHECK(all_equal(tensor.get(), span.nbytes, 9));
  std::memset(tensor.get(), 5, span.nbytes);
  CHECK(stored(session, 0, span.nbytes, 5));
  // With two at once the second gets one of its own.
  Producer other(session);
  CHECK(other.mapping->tensor(0, 1).get() != address);
  tensor.reset();
  CHECK(next.mapping->abandon());
  CHECK(other.mapping->abandon());
  CHECK(session.payload->kept_shared().count() == 2);
}

TEST_CASE("a mapping that was private once is not kept") {
  Session session;
  Producer producer(session);
  const std::int64_t mappings = tq::mapping_budget::alive();
  auto tensor = producer.mapping->tensor(0, span.nbytes);
  producer.seal();
  std::memset(tensor.get(), 8, span.nbytes);
  tensor.reset();
  CHECK(session.payload->kept_shared().count() == 0);
  CHECK(tq::mapping_budget::alive() == mappings - 1);
}

TEST_CASE("an extent that was aborted with tensors alive keeps its mapping when they are dead") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(0, span.nbytes);
  CHECK_FALSE(producer.mapping->abandon());
  CHECK(session.payload->kept_shared().count() == 0);
  std::thread([gone = std::move(tensor)]() mutable { gone.reset(); }).join();
  CHECK(session.payload->kept_shared().count() == 1);
}

TEST_CASE("threads that write all the time while it is sealed never reach the store afterwards") {
  Session session;
  for (int round = 0; round < 20; ++round) {
    Producer producer(session);
    auto tensor = producer.mapping->tensor(0, span.nbytes);
    std::memset(tensor.get(), 0, span.nbytes);
    std::atomic<bool> stop{false};
    std::thread writer([&] { write_until(stop, tensor.get()); });
    producer.seal();
    const std::vector<std::byte> published(session.payload->readable(span), session.payload->readable(span) + span.nbytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    CHECK(std::memcmp(published.data(), session.payload->readable(span), span.nbytes) == 0);
    stop = true;
    writer.join();
    CHECK(std::memcmp(published.data(), session.payload->readable(span), span.nbytes) == 0);
  }
}

TEST_CASE("abandoned with tensors alive: the extent comes back when the last one dies") {
  Session session;
  Producer producer(session);
  auto first = producer.mapping->tensor(0, 100);
  auto second = producer.mapping->tensor(100, 100);
  CHECK_FALSE(producer.mapping->abandon());
  CHECK_FALSE(producer.mapping->abandon());
  std::memset(first.get(), 1, 100);  // still theirs
  first.reset();
  CHECK(producer.given_back().empty());
  producer.mapping.reset();
  CHECK(producer.given_back().empty());
  std::thread([gone = std::move(second)]() mutable { gone.reset(); }).join();
  const auto extents = producer.given_back();
  REQUIRE(extents.size() == 1);
  CHECK(extents[0].span == span);
  CHECK(extents[0].block == block);
  CHECK(producer.given_back().empty());
}

TEST_CASE("a commit that fails after sealing gives the extent back too") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(0, 100);
  producer.seal();
  CHECK_FALSE(producer.mapping->abandon());
  CHECK(session.leases->held() == 1);
  tensor.reset();
  CHECK(session.leases->held() == 0);
  CHECK(producer.given_back().size() == 1);
}

TEST_CASE("dropped without commit or abort: the extent is queued") {
  Session session;
  Producer producer(session);
  producer.mapping.reset();
  CHECK(producer.given_back().size() == 1);
}

TEST_CASE("dropped without a word while a tensor lives") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(0, 100);
  producer.mapping.reset();
  std::memset(tensor.get(), 1, 100);
  CHECK(producer.given_back().empty());
  tensor.reset();
  CHECK(producer.given_back().size() == 1);
}

TEST_CASE("a failed seal changes nothing") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(0, span.nbytes);
  tq::arm_pause("producer.before_seal", tq::PauseAction::fail);
  CHECK(error_of([&] { producer.seal(); }).code == tq::ErrorCode::system);
  tq::resume_pause("producer.before_seal");
  CHECK(session.leases->held() == 0);
  std::memset(tensor.get(), 3, 10);
  CHECK(stored(session, 0, 10, 3));
  producer.seal();
}

TEST_CASE("what is outside the extent is refused") {
  Session session;
  Producer producer(session);
  CHECK(error_of([&] { producer.mapping->tensor(0, span.nbytes + 1); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { producer.mapping->tensor(span.nbytes + 1, 0); }).code == tq::ErrorCode::invalid);
  CHECK(producer.mapping->tensors_alive() == 0);
  CHECK(producer.mapping->abandon());
}

TEST_CASE("a forked child can neither write to the store nor give the extent back") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(0, span.nbytes);
  std::memset(tensor.get(), 7, span.nbytes);
  CHECK(in_child([&] {
          std::memset(tensor.get(), 9, span.nbytes);
          if (error_of([&] { producer.mapping->tensor(0, 1); }).code != tq::ErrorCode::invalid) return 1;
          if (producer.mapping->abandon()) return 2;
          tensor.reset();
          producer.mapping.reset();
          return producer.given_back().empty() ? 0 : 3;
        }) == 0);
  CHECK(stored(session, 0, span.nbytes, 7));
  std::memset(tensor.get(), 8, 10);  // the parent's is still shared
  CHECK(stored(session, 0, 10, 8));
  producer.seal();
}

TEST_CASE("a forked child keeps nothing of a producer that it inherited") {
  Session session;
  Producer producer(session);
  CHECK(in_child([&] {
          producer.mapping.reset();
          return session.payload->kept_shared().count() == 0 ? 0 : 1;
        }) == 0);
  CHECK(producer.mapping->abandon());
}

TEST_CASE("a forked child keeps a sealed tensor as a view with a claim of its own") {
  Session session;
  Producer producer(session);
  auto tensor = producer.mapping->tensor(0, span.nbytes);
  std::memset(tensor.get(), 7, span.nbytes);
  producer.seal();
  const Signal go;
  const pid_t child = start_child([&] {
    go.wait();
    if (!all_equal(tensor.get(), span.nbytes, 7)) return 1;
    std::memset(tensor.get(), 9, span.nbytes);
    tensor.reset();
    return session.leases->held() == 0 ? 0 : 2;
  });
  tensor.reset();
  CHECK(retire(session).empty());
  go.send();
  CHECK(finish(child) == 0);
  CHECK(retire(session) == std::vector{block});
  CHECK(stored(session, 0, span.nbytes, 7));
}

TEST_CASE("the queue takes pushes of many threads, and drops what belongs to a parent") {
  tq::GiveBackQueue queue;
  std::vector<std::thread> threads;
  std::atomic<std::size_t> drained{0};
  std::atomic<bool> stop{false};
  for (std::uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&queue, t] {
      for (std::uint32_t i = 0; i < 2'000; ++i) {
        auto node = std::make_unique<tq::GiveBackQueue::Node>();
        node->extent = {{i, 1}, BlockRef::make(t + 1, i), 5};
        queue.push(std::move(node));
      }
    });
  }
  std::thread drainer([&] {
    while (!stop) drained += queue.drain(5).size();
  });
  for (auto& thread : threads) thread.join();
  stop = true;
  drainer.join();
  CHECK(drained + queue.drain(5).size() == 6'000);
  queue.push(std::make_unique<tq::GiveBackQueue::Node>());
  CHECK(queue.drain(5).empty());
  CHECK(queue.empty());
}

}  // namespace tq_test::producer_mapping_test
