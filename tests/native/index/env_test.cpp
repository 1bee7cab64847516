#include "core/index/env.hpp"

#include <sys/statvfs.h>

#include <cerrno>
#include <fstream>
#include <thread>

#include "core/index/impl.hpp"
#include "index/support.hpp"

using namespace tq_test;

TEST_CASE("two handles of one process share the environment, and either may go first") {
  Session session;
  auto second = std::make_unique<Index>(session.directory.path(), session.gate, session.judge);
  put(*session.index, "p", fresh(1), {"a"});
  CHECK(second->list_rows("p").indexes.size() == 1);
  session.index.reset();
  put(*second, "p", fresh(1), {"a"});
  Index third(session.directory.path(), session.gate, session.judge);
  second.reset();
  CHECK(third.list_rows("p").indexes.size() == 2);
}

TEST_CASE("rows outlive the last process that had the index open") {
  Session session;
  put(*session.index, "p", by_key({"a"}), {"x"});
  session.index.reset();
  Index again(session.directory.path(), session.gate, session.judge);
  bool found = false;
  CHECK(again.find_keys("p", {"a"}, &found) == range(0, 1));
  check_whole_index(session.directory.path());
}

TEST_CASE("what is no index, or another version's, is refused by name") {
  CountingGate gate;
  TestJudge judge;
  TempDirectory empty;
  CHECK(error_of([&] { Index index(empty.path(), gate, judge); }).code == tq::ErrorCode::session_not_found);
  CHECK(error_of([&] { Index index(empty.path() + "/none", gate, judge); }).code == tq::ErrorCode::session_not_found);
  CHECK(error_of([&] { Index::create(empty.path() + "/none", 16u << 20, 1u << 20); }).code == tq::ErrorCode::session_not_found);
  CHECK(error_of([&] { Index::create(empty.path(), 1u << 20, 1u << 20); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { Index::create(empty.path(), 16u << 20, 1u << 20, 0); }).code == tq::ErrorCode::invalid);
  std::ofstream(empty.path() + "/data.mdb") << std::string(1 << 16, 'x');
  CHECK(error_of([&] { Index index(empty.path(), gate, judge); }).code == tq::ErrorCode::layout_mismatch);

  Session session;
  {
    const auto env = tq::index::Env::open(session.directory.path());
    tq::index::WriteTxn txn(*env, session.gate);
    tq::index::Format format;
    std::string bytes = format.encode();
    bytes[8] = 99;
    txn.put(tq::index::Key(tq::index::Table::format), bytes);
    txn.commit(tq::index::Room::release);
  }
  const tq::Error other = error_of([&] { Index index(session.directory.path(), session.gate, session.judge); });
  CHECK(other.code == tq::ErrorCode::layout_mismatch);
  CHECK(std::string(other.what()).find("format 99") != std::string::npos);
  CHECK(std::string(other.what()).find("format " + std::to_string(tq::index::format_version)) != std::string::npos);
}

TEST_CASE("an index larger than its file system is an error at creation") {
  TempDirectory directory;
  struct statvfs status {};
  REQUIRE(statvfs(directory.path().c_str(), &status) == 0);
  // Twice the whole file system: tmpfs refuses it at once.
  const std::uint64_t nbytes = (std::uint64_t{2} * status.f_blocks * status.f_frsize + 0xffff) & ~std::uint64_t{0xffff};
  const tq::Error error = error_of([&] { Index::create(directory.path(), nbytes, 1u << 20); });
  CHECK(error.code == tq::ErrorCode::system);
  CHECK(error.errno_value == ENOSPC);
  CHECK(std::string(error.what()).find("reserve " + std::to_string(nbytes) + " bytes") != std::string::npos);
}

TEST_CASE("damaged records are errors, never crashes") {
  using namespace tq::index;
  for (const Table table : {Table::runs, Table::blocks, Table::rowinfo, Table::partitions, Table::tasks, Table::consumed}) {
    for (const std::size_t keep : {std::size_t{0}, std::size_t{3}, std::size_t{9}, std::size_t{40}}) {
      Session session;
      Index& index = *session.index;
      put(index, "p", by_key({"a", "b"}), {"x", "y"}, {tag_map({{"t", "1"}}), ""});
      const auto snapshot = index.task_snapshot("p", "t", {"x"});
      index.task_commit("p", "t", snapshot.task_version, {"x"}, {0}, "state");
      {
        const auto env = Env::open(session.directory.path());
        WriteTxn txn(*env, session.gate);
        std::string key;
        std::string value;
        {
          Cursor cursor(txn, table);
          REQUIRE(cursor.seek(Key(table)));
          key = cursor.tail();
          value = cursor.value();
        }
        if (value.size() <= keep) continue;
        Key damaged(table);
        for (const char c : key) damaged.name({&c, 1});
        txn.put(damaged, std::string(keep, '\xfe'));
        txn.commit(Room::release);
      }
      const auto survives = [&](auto&& call) {
        try {
          call();
        } catch (const tq::Error& error) {
          CHECK((error.code == tq::ErrorCode::corrupt || error.code == tq::ErrorCode::stale_rows));
        }
      };
      survives([&] { index.resolve("p", by_index({0, 1}), std::nullopt); });
      survives([&] { index.resolve("p", by_key({"a"}), std::vector<std::string>{"x"}); });
      survives([&] { index.list_rows("p"); });
      survives([&] { index.consumption("p", "t"); });
      survives([&] { index.task_snapshot("p", "t", {"x"}); });
      survives([&] { put(index, "p", by_index({0}), {"x"}, {tag_map({{"t", "2"}})}); });
      survives([&] { index.clear_rows("p", by_index({0, 1})); });
      survives([&] { index.clear_partition("p"); });
      CHECK(session.gate.entered.load() == session.gate.left.load());
    }
  }
}

TEST_CASE("LMDB's codes become errors that say what to do") {
  const auto code_of = [](int rc) { return error_of([&] { tq::index::throw_lmdb(rc, "test"); }).code; };
  CHECK(code_of(MDB_MAP_FULL) == tq::ErrorCode::index_full);
  CHECK(code_of(MDB_TXN_FULL) == tq::ErrorCode::index_full);
  CHECK(code_of(MDB_READERS_FULL) == tq::ErrorCode::system);
  CHECK(code_of(MDB_BAD_RSLOT) == tq::ErrorCode::closed);
  CHECK(code_of(MDB_PANIC) == tq::ErrorCode::corrupt);
  CHECK(code_of(MDB_PAGE_NOTFOUND) == tq::ErrorCode::corrupt);
  CHECK(code_of(MDB_VERSION_MISMATCH) == tq::ErrorCode::layout_mismatch);
  CHECK(code_of(ENOENT) == tq::ErrorCode::session_not_found);
  const tq::Error denied = error_of([&] { tq::index::throw_lmdb(EACCES, "test"); });
  CHECK(denied.code == tq::ErrorCode::system);
  CHECK(denied.errno_value == EACCES);
}

TEST_CASE("threads that attach and detach at once never have two environments") {
  Session session;
  session.index.reset();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        Index index(session.directory.path(), session.gate, session.judge);
        put(index, "p", fresh(1), {"a"});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Index index(session.directory.path(), session.gate, session.judge);
  CHECK(index.list_rows("p").indexes == range(0, 90));
  check_whole_index(session.directory.path());
}
