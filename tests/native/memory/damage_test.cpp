// Words of shared memory and lease files that somebody else wrote: what they say is bounded, and nobody's claims are lost to it.
#include <sys/stat.h>

#include "core/memory/robust_lock.hpp"
#include "memory/support.hpp"

namespace tq_test::damage_test {

using tq::BlockRef;
using tq::ErrorCode;
using tq::layout::ControlLayout;
using tq::layout::LeaseFileLayout;

namespace {

template <class T>
void overwrite(int fd, std::size_t at, T value) {
  REQUIRE(::pwrite(fd, &value, sizeof value, static_cast<off_t>(at)) == static_cast<ssize_t>(sizeof value));
}

std::string lease_name(const Session& session, tq::OwnerId owner) { return session.lease_path + "/" + std::to_string(owner) + ".lease"; }

tq::FileDescriptor opened(const std::string& path) {
  tq::FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(fd.get() >= 0);
  return fd;
}

ino_t inode(const std::string& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

}  // namespace

TEST_CASE("the mark in one's own lease file is never read back") {
  Session session;
  const tq::FileDescriptor fd = opened(lease_name(session, session.leases->owner()));
  for (const std::uint32_t mark : {std::uint32_t{0}, ~std::uint32_t{0}}) {
    overwrite(fd.get(), offsetof(LeaseFileLayout, high_water), mark);
    std::vector<std::uint32_t> taken;
    for (std::uint32_t i = 0; i < 2000; ++i) taken.push_back(session.leases->take(BlockRef::make(i + 1, 0), 1));
    CHECK(session.leases->held() == 2000);
    for (const std::uint32_t entry : taken) session.leases->release(entry);
  }
  CHECK(session.clients->clients().size() == 1);
}

TEST_CASE("a mark beyond the end of another's lease file reads to the end and no further") {
  Session session;
  const auto other = session.new_client();
  const tq::FileDescriptor fd = opened(lease_name(session, other->owner()));
  overwrite(fd.get(), offsetof(LeaseFileLayout, high_water), ~std::uint32_t{0});
  CHECK(session.clients->clients().size() == 2);
}

TEST_CASE("an owner's number that is given out twice takes nobody's lease file") {
  Session session;
  const std::string path = lease_name(session, session.leases->owner());
  const ino_t before = inode(path);
  session.leases->take(BlockRef::make(5, 1), 1);
  overwrite(session.control_fd.get(), offsetof(ControlLayout, next_owner), std::uint64_t{0});
  const auto other = session.new_client();
  CHECK(other->owner() != session.leases->owner());
  CHECK(inode(path) == before);
  const BlockRef claimed[] = {BlockRef::make(5, 1)};
  CHECK(session.clients->unleased(claimed).empty());
}

TEST_CASE("a damaged lease file: of the dead it is removed, while its process lives nothing is freed") {
  Session session;
  const tq::OwnerId dead = 90;
  session.directory.file("leases/" + std::to_string(dead) + ".lease");
  REQUIRE(::mkfifo(lease_name(session, 91).c_str(), 0600) == 0);  // would block whoever opens it as a file
  const BlockRef block[] = {BlockRef::make(1, 1)};
  CHECK(session.clients->unleased(block).size() == 1);
  CHECK(session.clients->dead().size() == 2);
  session.clients->remove(dead);
  session.clients->remove(91);
  CHECK(session.clients->clients().size() == 1);

  const auto other = session.new_client();
  const tq::FileDescriptor fd = opened(lease_name(session, other->owner()));
  overwrite(fd.get(), 0, std::uint64_t{0});
  CHECK(error_of([&] { session.clients->unleased(block); }).code == ErrorCode::corrupt);
}

TEST_CASE("a lock of another kind is damaged, not tried") {
  Session session;
#if defined(__GLIBC__)
  overwrite(session.control_fd.get(), offsetof(ControlLayout, write_gate) + offsetof(pthread_mutex_t, __data.__kind), 0);
  const tq::Error error = error_of([&] { tq::robust_lock::lock(session.control->write_gate(), 0.1, "lock"); });
  CHECK(error.code == ErrorCode::corrupt);
#endif
}

TEST_CASE("marks of the payload beyond its end") {
  Session session;
  using tq::layout::PayloadLayout;
  for (const std::size_t mark : {offsetof(PayloadLayout, touched_bytes), offsetof(PayloadLayout, collapsed_bytes),
                                 offsetof(PayloadLayout, huge_bytes), offsetof(PayloadLayout, backed_bytes)}) {
    overwrite(session.payload_fd.get(), mark, ~std::uint64_t{0} - 4095);
  }
  CHECK(session.payload->backed_bytes() == payload_bytes);
  CHECK(session.payload->grow(payload_bytes) == payload_bytes);
  session.payload->make_huge(64u << 20);
  session.payload->note_touched({0, 4096});
  CHECK(error_of([&] { session.payload->readable({payload_bytes, 1}); }).code == ErrorCode::invalid);
}

}  // namespace tq_test::damage_test
