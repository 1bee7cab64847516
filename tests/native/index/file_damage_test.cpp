// Files of an index, damaged behind LMDB's back: opening says so.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/index/lmdb_file.hpp"
#include "core/index/tree_walk.hpp"
#include "index/support.hpp"

using namespace tq_test;
using tq::ErrorCode;

namespace {

// Writes at a place of one of the index's files, and opens it.
tq::Error opened_with(const std::string& file, std::uint64_t at, std::uint64_t value, std::size_t nbytes) {
  Session session;
  put(*session.index, "p", by_key({"a", "b"}), {"x"});
  session.index.reset();
  const std::string path = session.directory.path() + "/" + file;
  const int fd = ::open(path.c_str(), O_RDWR);
  REQUIRE(fd >= 0);
  REQUIRE(::pwrite(fd, &value, nbytes, static_cast<off_t>(at)) == static_cast<ssize_t>(nbytes));
  ::close(fd);
  return error_of([&] { Index(session.directory.path(), session.gate, session.judge); });
}

// Where the number of the transaction of the free list's first entry stands; the tree has one page.
std::uint64_t first_free_list(const std::string& path) {
  using namespace tq::index::lmdb_file;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* const base = reinterpret_cast<const std::byte*>(bytes.data());
  const auto page_nbytes = std::uint64_t{tq::index::read_as<Meta>(base + sizeof(PageHeader)).trees[0].pad};
  const auto newest = std::max(tq::index::read_as<Meta>(base + sizeof(PageHeader)), tq::index::read_as<Meta>(base + page_nbytes + sizeof(PageHeader)),
                               [](const Meta& a, const Meta& b) { return a.transaction < b.transaction; });
  REQUIRE(newest.trees[0].depth == 1);
  const std::uint64_t root = newest.trees[0].root * page_nbytes;
  const auto offset = tq::index::read_as<std::uint16_t>(base + root + sizeof(PageHeader));
  const auto number = tq::index::read_as<std::uint64_t>(base + root + offset + sizeof(NodeHeader));
  REQUIRE(number > 0);
  REQUIRE(number <= newest.transaction);
  return root + offset + sizeof(NodeHeader);
}

}  // namespace

TEST_CASE("pages freed by a transaction that was not are not given out") {
  // LMDB reads the entry of transaction 0 again and again, and then gives a page out twice.
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
    Session session;
    for (int i = 0; i < 20; ++i) put(*session.index, "p", by_key({"a" + std::to_string(i)}), {"x"});
    session.index.reset();
    const std::string path = session.directory.path() + "/data.mdb";
    const std::uint64_t at = first_free_list(path);
    const int fd = ::open(path.c_str(), O_RDWR);
    REQUIRE(::pwrite(fd, &number, sizeof number, static_cast<off_t>(at)) == sizeof number);
    ::close(fd);
    CHECK(error_of([&] { Index(session.directory.path(), session.gate, session.judge); }).code == ErrorCode::corrupt);
  }
}

TEST_CASE("LMDB is not asked to follow what is no page") {
  using namespace tq::index::lmdb_file;
  // By which LMDB divides, and which it reads before it has looked at anything.
  CHECK(opened_with("data.mdb", sizeof(PageHeader) + offsetof(Meta, trees), 0, 4).code == ErrorCode::corrupt);
  CHECK(opened_with("data.mdb", sizeof(PageHeader) + offsetof(Meta, version), 7, 4).code == ErrorCode::layout_mismatch);
  CHECK(opened_with("data.mdb", sizeof(PageHeader) + offsetof(Meta, last_page), std::uint64_t{1} << 50, 8).code == ErrorCode::corrupt);
  CHECK(opened_with("lock.mdb", n_readers_offset, 0x7fffffff, 4).code == ErrorCode::corrupt);
#if defined(__GLIBC__)
  CHECK(opened_with("lock.mdb", writer_mutex_offset + offsetof(pthread_mutex_t, __data.__kind), 0, 4).code == ErrorCode::corrupt);
#endif
  // The root of every page after the two first: some are in use, and those are found.
  int found = 0;
  for (std::uint64_t page = 2; page < 12; ++page) {
    for (const std::size_t field : {offsetof(PageHeader, number), offsetof(PageHeader, flags), offsetof(PageHeader, lower), offsetof(PageHeader, upper)}) {
      Session session;
      put(*session.index, "p", by_key({"a", "b"}), {"x"});
      session.index.reset();
      const int fd = ::open((session.directory.path() + "/data.mdb").c_str(), O_RDWR);
      const std::uint16_t value = 0xfff1;
      REQUIRE(::pwrite(fd, &value, sizeof value, static_cast<off_t>(page * 4096 + field)) == 2);
      ::close(fd);
      try {
        const Index index(session.directory.path(), session.gate, session.judge);
      } catch (const tq::Error& error) {
        CHECK(error.code == ErrorCode::corrupt);
        ++found;
      }
    }
  }
  CHECK(found >= 12);
}
