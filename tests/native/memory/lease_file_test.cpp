#include "memory/support.hpp"

#include <limits>
#include <set>

#include "core/memory/lease.hpp"
#include "core/memory/lease_clock.hpp"

namespace tq_test::lease_file_test {

using tq::BlockRef;
using tq::ClientInfo;

namespace {

std::string path_of(const Session& session, tq::OwnerId owner) { return session.lease_path + "/" + std::to_string(owner) + ".lease"; }

ClientInfo client_of(Session& session, tq::OwnerId owner) {
  for (const ClientInfo& client : session.clients->clients()) {
    if (client.owner == owner) return client;
  }
  FAIL("owner " << owner << " is not listed");
  return {};
}

}  // namespace

TEST_CASE("a client appears alive, with who it is, and vanishes when it leaves") {
  Session session;
  const tq::OwnerId owner = session.leases->owner();
  const ClientInfo client = client_of(session, owner);
  CHECK(client.alive);
  CHECK(client.pid == ::getpid());
  CHECK(client.start_time_s > 0);
  CHECK(client.age_s >= 0);
  CHECK(client.leased.empty());
  CHECK_FALSE(session.clients->is_dead(owner));
  session.leases.reset();
  CHECK(session.lease_files() == 0);
  CHECK(session.clients->clients().empty());
  CHECK(session.clients->is_dead(owner));
}

TEST_CASE("entries are taken, released and used again; the file grows as needed") {
  Session session;
  tq::LeaseFile& leases = *session.leases;
  std::vector<std::uint32_t> entries;
  for (std::uint32_t i = 0; i < 5'000; ++i) entries.push_back(leases.take(BlockRef::make(1, i), tq::lease_clock_ns()));
  CHECK(std::set<std::uint32_t>(entries.begin(), entries.end()).size() == entries.size());
  CHECK(leases.held() == 5'000);
  CHECK(client_of(session, leases.owner()).leased.size() == 5'000);
  leases.release(entries[100]);
  leases.release(entries[4'000]);
  CHECK(leases.held() == 4'998);
  const std::set<std::uint32_t> reused{leases.take(BlockRef::make(2, 1), 1), leases.take(BlockRef::make(2, 2), 1)};
  CHECK(reused == std::set<std::uint32_t>{entries[100], entries[4'000]});
  for (const std::uint32_t entry : entries) leases.release(entry);
  CHECK(leases.held() == 0);
  CHECK(client_of(session, leases.owner()).leased.empty());
}

TEST_CASE("a claim says since when, and one in a reused entry since its own time") {
  Session session;
  tq::LeaseFile& leases = *session.leases;
  const std::int64_t old_ns = tq::lease_clock_ns() / 2;  // the clock began when the machine did, maybe a minute ago
  const double old_s = static_cast<double>(old_ns) / 1e9;
  const std::uint32_t old = leases.take(BlockRef::make(1, 1), tq::lease_clock_ns() - old_ns);
  CHECK(client_of(session, leases.owner()).leased.at(0).age_s >= old_s);
  leases.release(old);
  REQUIRE(leases.take(BlockRef::make(2, 1), tq::lease_clock_ns()) == old);
  const ClientInfo client = client_of(session, leases.owner());
  REQUIRE(blocks_of(client) == std::vector{BlockRef::make(2, 1)});
  CHECK(client.leased[0].age_s >= 0);
  CHECK(client.leased[0].age_s < old_s);
}

TEST_CASE("what another process wrote into its lease file is bounded: times, entries, the mark") {
  Session session;
  const tq::OwnerId owner = session.leases->owner();
  const std::uint32_t entry = session.leases->take(BlockRef::make(1, 1), tq::lease_clock_ns());
  const tq::FileDescriptor fd(::open(path_of(session, owner).c_str(), O_RDWR | O_CLOEXEC));
  const auto poke = [&fd](std::uint64_t offset, auto value) {
    REQUIRE(::pwrite(fd.get(), &value, sizeof value, static_cast<off_t>(offset)) == sizeof value);
  };
  for (const std::int64_t since_ns : {std::int64_t{0}, std::int64_t{-5}, tq::lease_clock_ns() + 3'600'000'000'000,
                                      std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    poke(tq::layout::lease_times_offset + entry * 8, since_ns);
    CHECK(client_of(session, owner).leased.at(0).age_s == 0);
  }
  // Words that name no block: an entry being taken, and anything else without a generation.
  poke(tq::layout::lease_entries_offset + (entry + 1) * 8, tq::layout::lease_being_taken);
  poke(tq::layout::lease_entries_offset + (entry + 2) * 8, std::uint64_t{0xffffff});
  CHECK(blocks_of(client_of(session, owner)) == std::vector{BlockRef::make(1, 1)});
  CHECK(session.clients->unleased(std::vector{BlockRef{tq::layout::lease_being_taken}}).size() == 1);
  poke(offsetof(tq::layout::LeaseFileLayout, high_water), std::uint32_t{0xffffffff});
  CHECK(blocks_of(client_of(session, owner)) == std::vector{BlockRef::make(1, 1)});
  poke(offsetof(tq::layout::LeaseFileLayout, high_water), tq::layout::first_lease_step);
}

TEST_CASE("a reader of the times meets claims that come and go") {
  Session session;
  // Claims on block n are always taken at n units before now; whoever pairs a claim with another's time sees it. A minute
  // where the clock, which began when the machine did, reaches back that far.
  constexpr std::int64_t most_units = 30;
  const std::int64_t unit_ns = std::min<std::int64_t>(60'000'000'000, tq::lease_clock_ns() / (most_units + 1));
  const double unit_s = static_cast<double>(unit_ns) / 1e9;
  std::atomic<bool> stop{false};
  std::vector<std::thread> takers;
  for (std::uint32_t t = 0; t < 2; ++t) {
    takers.emplace_back([&, t] {
      for (std::uint32_t i = 0; !stop; ++i) {
        const std::uint32_t units = 1 + (i * 2 + t) % most_units;
        session.leases->release(session.leases->take(BlockRef::make(units, units), tq::lease_clock_ns() - units * unit_ns));
      }
    });
  }
  for (int looks = 0; looks < 3'000; ++looks) {
    for (const tq::HeldLease& lease : client_of(session, session.leases->owner()).leased) {
      const double units = lease.age_s / unit_s - static_cast<double>(lease.block.slot());
      if (units < -0.1 || units > 0.8) {  // the look began a little earlier
        FAIL_CHECK("block " << lease.block.slot() << " has the age " << lease.age_s);
      }
    }
  }
  stop = true;
  for (auto& taker : takers) taker.join();
}

TEST_CASE("threads take and release at once without sharing an entry") {
  Session session;
  std::vector<std::atomic<int>> users(tq::layout::max_leases);
  std::atomic<int> shared{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::uint32_t> held;
      for (std::uint32_t i = 0; i < 4'000; ++i) {
        held.push_back(session.leases->take(BlockRef::make(t + 1, i), 1));
        if (users[held.back()].fetch_add(1) != 0) ++shared;
        if (held.size() < 300 && i + 1 < 4'000) continue;
        for (const std::uint32_t entry : held) {
          users[entry].fetch_sub(1);
          session.leases->release(entry);
        }
        held.clear();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(shared == 0);
  CHECK(session.leases->held() == 0);
}

TEST_CASE("a full lease file is an error that says so, and release makes room") {
  Session session;
  for (std::uint32_t i = 0; i < tq::layout::max_leases; ++i) session.leases->take(BlockRef::make(1, 1), 1);
  const tq::Error error = error_of([&] { session.leases->take(BlockRef::make(1, 1), 1); });
  CHECK(error.code == tq::ErrorCode::storage_full);
  CHECK_MESSAGE(contains(error.what(), std::to_string(tq::layout::max_leases)), error.what());
  session.leases->release(12'345);
  CHECK(session.leases->take(BlockRef::make(1, 1), 1) == 12'345);
}

TEST_CASE("a killed client is dead at once, its claims protect nobody, and reaping removes it") {
  Session session;
  const BlockRef block = BlockRef::make(1, 3);
  session.make_block(block, {0, 64}, 1);
  const Signal ready;
  const Signal never;
  const pid_t child = start_child([&] {
    const auto own = session.new_client();
    const auto held = tq::lease_blocks(*session.table, own, std::vector{block});
    ready.send();
    never.wait();
    return held ? 0 : 1;
  });
  REQUIRE(ready.wait());
  CHECK(session.clients->dead().empty());
  CHECK(session.clients->unleased(std::vector{block}).empty());
  ::kill(child, SIGKILL);
  REQUIRE(finish(child) == -SIGKILL);
  const auto dead = session.clients->dead();
  REQUIRE(dead.size() == 1);
  CHECK(dead[0].pid == child);
  CHECK(blocks_of(dead[0]) == std::vector{block});
  CHECK(session.clients->unleased(std::vector{block}) == std::vector{block});
  session.clients->remove(dead[0].owner);
  CHECK(session.lease_files() == 1);
}

TEST_CASE("a stopped process, and a zombie's parent, are not mistaken") {
  Session session;
  const Signal ready;
  const Signal go;
  const pid_t child = start_child([&] {
    const auto own = session.new_client();
    ready.send();
    go.wait();
    return 0;
  });
  REQUIRE(ready.wait());
  ::kill(child, SIGSTOP);
  CHECK(session.clients->dead().empty());  // it holds its lock, however long it sleeps
  ::kill(child, SIGCONT);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(session.clients->dead().size() == 1);  // a zombie keeps pid and start time, not the lock
  CHECK(finish(child) == -SIGKILL);
}

TEST_CASE("a process that executes another program is dead as a client") {
  Session session;
  const Signal closed;  // close-on-exec: the read end sees the end of file when exec has happened
  const pid_t child = start_child([&] {
    const auto own = session.new_client();
    ::execl("/bin/sleep", "sleep", "60", nullptr);
    return 1;
  });
  CHECK(eventually([&] { return session.clients->dead().size() == 1; }));
  CHECK(session.clients->dead().at(0).pid == child);
  ::kill(child, SIGKILL);
  CHECK(finish(child) == -SIGKILL);
}

TEST_CASE("remove spares the living") {
  Session session;
  session.clients->remove(session.leases->owner());
  CHECK(session.lease_files() == 1);
}

TEST_CASE("a client that dies while its file is made leaves nothing behind after a reap") {
  Session session;
  CHECK(in_child([&] {
          tq::arm_pause("lease_file.locked", tq::PauseAction::kill);
          session.new_client();
          return 0;
        }) == -SIGKILL);
  CHECK(session.lease_files() == 2);  // a temporary one
  CHECK(session.clients->clients().size() == 1);
  CHECK(session.clients->dead().empty());
  CHECK(session.lease_files() == 1);
}

TEST_CASE("a maker whose temporary file a reaper took tries again") {
  Session session;
  tq::arm_pause("lease_file.locked", tq::PauseAction::stop);
  std::shared_ptr<tq::LeaseFile> made;
  std::thread maker([&] { made = session.new_client(); });
  REQUIRE(eventually([] { return tq::is_paused("lease_file.locked"); }));
  for (const auto& item : std::filesystem::directory_iterator(session.lease_path)) {
    if (item.path().extension() == ".tmp") std::filesystem::remove(item.path());
  }
  tq::resume_pause("lease_file.locked");
  maker.join();
  REQUIRE(made != nullptr);
  CHECK(client_of(session, made->owner()).alive);
  CHECK(session.lease_files() == 2);
}

TEST_CASE("a failed creation leaves no temporary file") {
  Session session;
  tq::arm_pause("lease_file.locked", tq::PauseAction::fail);
  CHECK(error_of([&] { session.new_client(); }).code == tq::ErrorCode::system);
  tq::resume_pause("lease_file.locked");
  CHECK(session.lease_files() == 1);
  std::filesystem::remove_all(session.lease_path);
  CHECK(error_of([&] { session.new_client(); }).code == tq::ErrorCode::session_not_found);
  CHECK(error_of([&] { session.clients->clients(); }).code == tq::ErrorCode::session_not_found);
}

TEST_CASE("another session of the same name is left alone by whoever still holds the old one") {
  Session session;
  const BlockRef block = BlockRef::make(1, 3);
  session.make_block(block, {0, 64}, 1);
  auto held = tq::lease_blocks(*session.table, session.leases, std::vector{block});
  REQUIRE(held.has_value());
  const std::string old_file = path_of(session, session.leases->owner());
  // The session is removed under the holder; a new one, with the same owner ids, takes its place.
  std::filesystem::remove_all(session.lease_path);
  std::filesystem::create_directory(session.lease_path);
  const tq::FileDescriptor impostor(::open(old_file.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(impostor.get() >= 0);
  CHECK(error_of([&] { session.clients->dead(); }).code == tq::ErrorCode::session_not_found);
  session.clients->remove(session.leases->owner());
  session.leases.reset();
  held.reset();
  CHECK(std::filesystem::exists(old_file));
}

TEST_CASE("a damaged lease file is named, not believed") {
  Session session;
  const auto other = session.new_client();
  const std::string path = path_of(session, other->owner());
  REQUIRE(::truncate(path.c_str(), 100) == 0);
  const tq::Error error = error_of([&] { session.clients->clients(); });
  CHECK(error.code == tq::ErrorCode::corrupt);
  CHECK_MESSAGE(contains(error.what(), "lease file"), error.what());
}

}  // namespace tq_test::lease_file_test
