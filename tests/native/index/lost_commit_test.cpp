// Another file under the number of the index's descriptor, in the middle of a write: nothing that is there is lost by it.
#include "core/index/lost_commit.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "core/index/env.hpp"
#include "core/index/txn.hpp"
#include "core/pause.hpp"
#include "index/support.hpp"

using namespace tq_test;

namespace {

const char* point = nullptr;  // where it happens
std::string pages;            // whose descriptors are taken
int other = -1;               // by this file; none: they are closed

void take(const char* name) {
  if (point == nullptr || std::strcmp(name, point) != 0) return;
  point = nullptr;
  for (int fd = 3; fd < 256; ++fd) {
    std::error_code gone;
    if (std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), gone) != pages) continue;
    other < 0 ? ::close(fd) : ::dup2(other, fd);
  }
}

// 0: the put raised Error(closed); 1: it did something else. In a child, as its descriptors are gone after it.
int put_in_child(Session& session, const char* at, int file) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    int status = 1;
    try {
      session.index->reopen_in_child();
      put(*session.index, "p", by_key({"first of the child"}), {"x"});
      pages = std::filesystem::canonical(session.directory.path() + "/data.mdb");
      other = file;
      point = at;
      tq::set_pause_hook(take);
      put(*session.index, "p", by_key({"second of the child"}), {"x"});
    } catch (const tq::Error& error) {
      status = error.code == tq::ErrorCode::closed ? 0 : 1;
      if (status != 0) std::fprintf(stderr, "child: %s\n", error.what());
    }
    _exit(status);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a descriptor that is taken, or closed, amid a write loses no row of anybody") {
  TempDirectory files;
  for (const char* at : {"index.reserve.before_commit", "index.publish.before_commit", "index.before_commit"}) {
    for (const bool taken : {false, true}) {
      CAPTURE(at);
      CAPTURE(taken);
      Session session;
      put(*session.index, "p", by_key(numbered("old ", 300)), {"x"});
      // What is written into that file cannot be helped: the descriptor was looked at before.
      const int file = taken ? ::open((files.path() + "/file").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
      CHECK(put_in_child(session, at, file) == 0);
      if (taken) ::close(file);
      check_whole_index(session.directory.path());
      CHECK(session.index->list_rows("p").indexes.size() == 301);
      put(*session.index, "p", by_key({"new"}), {"x"});
      bool found = false;
      session.index->find_keys("p", {"first of the child", "new"}, &found);
      CHECK(found);
      CHECK(session.index->list_rows("p").indexes.size() == 302);
      check_whole_index(session.directory.path());
    }
  }
}

TEST_CASE("what LMDB committed, and what it had nothing to commit of, is kept") {
  Session session;
  put(*session.index, "p", fresh(3), {"x"});
  const auto env = tq::index::Env::open(session.directory.path());
  const std::size_t id = mdb_txn_id(tq::index::ReadTxn(*env).raw());
  env->check_committed(id);
  env->check_committed(id + 1);  // nothing was written
  CHECK(!tq::index::take_back(session.directory.path(), id + 1));
  CHECK(error_of([&] { tq::index::take_back("/nowhere", id); }).code == tq::ErrorCode::corrupt);
  put(*session.index, "p", fresh(3), {"x"});
  CHECK(session.index->list_rows("p").indexes.size() == 6);
}
