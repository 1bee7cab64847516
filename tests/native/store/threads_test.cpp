// What several threads of one process do to the same object at once; its point is the thread sanitizer.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <stdexcept>

#include "store/support.hpp"

using namespace tq_test;
using tq::ColumnKind;
using tq::ErrorCode;
using tq::ReadMode;

namespace {

constexpr std::uint64_t one_row_nbytes = 65536;

// Runs the call; what a rival's deed makes it throw is no failure.
void allowing(std::initializer_list<ErrorCode> codes, const std::function<void()>& call) {
  try {
    call();
  } catch (const tq::Error& error) {
    if (std::find(codes.begin(), codes.end(), error.code) == codes.end()) throw;
  }
}

// The error that a thread ended with would end the process: it fails the test instead.
std::function<void()> reported(std::atomic<int>& errors, std::function<void()> work) {
  return [&errors, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      ++errors;
      std::fprintf(stderr, "a thread ended with: %s\n", error.what());
    }
  };
}

}  // namespace

TEST_CASE("one answer, viewed, copied, counted and released by many threads") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto rows = put(*store, "p", fresh(2), 7).indexes;
  std::atomic<int> errors{0};
  std::atomic<int> wrong{0};
  for (int round = 0; round < 20; ++round) {
    const auto resolved = store->resolve("p", by_index(rows), std::nullopt, true);
    const tq::ColumnRequest request{0, ColumnKind::dense, one_row_nbytes};
    const auto view = [&] {
      allowing({ErrorCode::invalid}, [&] {  // released meanwhile
        const auto bytes = resolved->view(0, 0, one_row_nbytes, false);
        if (*static_cast<std::byte*>(bytes.get()) != std::byte{7}) ++wrong;
      });
    };
    const auto read = [&] {
      allowing({ErrorCode::invalid}, [&] {
        const auto columns = resolved->read({&request, 1}, round % 2 == 0 ? ReadMode::shared : ReadMode::copy, 1);
        if (*static_cast<std::byte*>(columns[0].data.get()) != std::byte{7}) ++wrong;
      });
    };
    const auto copy = [&] {
      allowing({ErrorCode::invalid}, [&] {
        if (value_of(*resolved, 2) != 7) ++wrong;
      });
    };
    const auto release = [&] { round % 3 == 0 ? resolved->finish() : resolved->release(); };
    run_together({reported(errors, view), reported(errors, view), reported(errors, read), reported(errors, copy),
                  reported(errors, release), reported(errors, release)});
  }
  CHECK(errors == 0);
  CHECK(wrong == 0);
  CHECK(figure(*store, "leased_bytes") == 0);
}

TEST_CASE("every kind of call on one store at once, and the accounts are right afterwards") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto rows = by_key({"a", "b"});
  put(*store, "p", rows, 1);
  std::atomic<bool> done{false};
  std::atomic<int> errors{0};
  std::atomic<int> torn{0};
  const auto until_done = [&](std::function<void()> deed) {
    return reported(errors, [&done, deed = std::move(deed)] {
      while (!done) deed();
    });
  };
  const auto write = reported(errors, [&] {
    for (int number = 1; number <= 60; ++number) put(*store, "p", rows, number);
    done = true;
  });
  const auto put_small = until_done([&] {
    const auto block = store->reserve(512, 10.0, nullptr, /*ahead=*/true);
    const std::vector<std::byte> bytes(512, std::byte{3});
    block->copy_in({{0, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size()}});
    tq::PublishRequest request;
    request.partition = "small";
    request.rows = fresh(1);
    request.fields = one_field(1, 512);
    store->clear_rows("small", by_index(store->publish(request, block.get()).indexes));
  });
  const auto read = until_done([&] {
    const auto resolved = store->resolve("p", rows, std::nullopt, true);
    const auto view = resolved->view(0, 0, one_row_nbytes, false);
    if (value_of(*resolved, 2) < 0) ++torn;
    resolved->finish();
    *static_cast<std::byte*>(view.get()) = std::byte{255};
  });
  const auto move = until_done([&] {
    const auto resolved = store->resolve("p", rows, std::nullopt, true);
    const auto block = store->reserve(2 * one_row_nbytes, 10.0, nullptr);
    std::vector<std::byte> bytes(2 * one_row_nbytes);
    resolved->copy_rows(0, resolved->pieces(0), bytes.data(), bytes.size());
    block->copy_in({{0, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size()}});
    store->move(*resolved, *block, one_field(2, one_row_nbytes));
  });
  const auto consume = until_done([&] {
    const tq::TaskSnapshot seen = store->task_snapshot("p", "t", {"a"});
    tq::TaskChoice choice{"p", "t", seen.task_version, {"a"}, {seen.ready.begin(), seen.ready.end()}, ""};
    if (choice.rows.empty()) return store->task_reset("p", "t");
    if (const auto grant = store->claim(choice, 1'000'000'000'000)) {
      allowing({ErrorCode::claim_over}, [&] { store->extend_claim("p", "t", grant->fencing, 1'000'000'000'000); });
      allowing({ErrorCode::claim_over}, [&] { store->finish_claim("p", "t", grant->fencing, true); });
    }
  });
  const auto keep_house = until_done([&] {
    store->reap();
    store->reclaim();
    store->drop_claims();
    store->trim();
    store->populate(1u << 16);
  });
  const auto look = until_done([&] {
    store->stats();
    store->clients();
    store->partition_stats();
    store->census();
    store->write_lock_holds();
    store->list_rows("p");
  });
  const auto wait = until_done([&] {
    const std::uint32_t seen = store->wake_word("p");
    store->wait_change("p", seen, store->partition_version("p"), 0.05, nullptr);
  });
  run_together({write, put_small, read, read, move, consume, keep_house, look, wait});
  CHECK(errors == 0);
  CHECK(torn == 0);
  store->check();
  store->clear_partition("p");
  store->clear_partition("small");
  store->reclaim();
  CHECK(figure(*store, "pending_bytes") == 0);
  CHECK(figure(*store, "used_bytes") == 0);
  CHECK(figure(*store, "leased_bytes") == 0);
}

TEST_CASE("closing while other threads call, attach and drop what they hold") {
  const SessionDirectory session;
  const auto stays = session.attach();
  put(*stays, "p", by_key({"a"}), 5);
  std::atomic<int> errors{0};
  for (int round = 0; round < 15; ++round) {
    const auto store = session.attach();
    const auto resolved = store->resolve("p", by_key({"a"}), std::nullopt, true);
    auto view = resolved->view(0, 0, one_row_nbytes, false);
    auto block = store->reserve(one_row_nbytes, 10.0, nullptr);
    const auto call = [&] {
      for (;;) {
        bool over = false;
        try {
          put(*store, "q", by_key({"b"}), 6);
          store->resolve("p", by_key({"a"}), std::nullopt, true)->release();
          store->stats();
        } catch (const tq::Error& error) {
          if (error.code != ErrorCode::closed) throw;
          over = true;
        }
        if (over) return;
      }
    };
    const auto sleep = [&] {
      allowing({ErrorCode::closed}, [&] { store->wait_change("p", store->wake_word("p"), store->partition_version("p"), 0.2, nullptr); });
    };
    const auto drop = [&] {
      const bool same = *static_cast<std::byte*>(view.get()) == std::byte{5};
      view.reset();
      resolved->release();
      block.reset();
      if (!same) throw std::runtime_error("a view changed");
    };
    const auto attach = [&] { session.attach()->resolve("p", by_key({"a"}), std::nullopt, true)->release(); };
    run_together({reported(errors, call), reported(errors, call), reported(errors, sleep), reported(errors, drop),
                  reported(errors, attach), reported(errors, [&] { store->close(); }),
                  reported(errors, [&] { store->close(); })});
  }
  CHECK(errors == 0);
  stays->reap();
  stays->clear_partition("p");
  stays->clear_partition("q");
  stays->reclaim();
  CHECK(figure(*stays, "pending_bytes") == 0);
  CHECK(figure(*stays, "leased_bytes") == 0);
  CHECK(stays->clients().size() == 1);
}

TEST_CASE("no wake is lost between threads that take turns on a partition") {
  const SessionDirectory session;
  const auto store = session.attach();
  store->ensure_partition("p");
  constexpr int rounds = 60;
  std::atomic<int> errors{0};
  std::atomic<int> tokens{0};
  const auto player = [&](int me) {
    return reported(errors, [&, me] {
      for (;;) {
        const std::uint32_t seen = store->wake_word("p");
        const int token = tokens;
        if (token >= rounds) return;
        if (token % 3 != me) {
          if (!store->wait_word("p", seen, 20.0)) throw std::runtime_error("nobody woke us");  // a lost wake sleeps it out
          continue;
        }
        ++tokens;
        store->wake("p");
      }
    });
  };
  run_together({player(0), player(1), player(2)});
  CHECK(errors == 0);
  CHECK(tokens == rounds);
}
