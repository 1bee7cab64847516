#include "memory/support.hpp"

#include <sys/resource.h>

namespace tq_test::segment_test {

using tq::ErrorCode;
using tq::layout::SegmentHeader;
using tq::layout::SegmentKind;

namespace {

// Overwrites bytes of a segment's header in place.
template <typename T>
void poke(const tq::FileDescriptor& fd, std::size_t offset, T value) {
  REQUIRE(::pwrite(fd.get(), &value, sizeof value, static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof value));
}

}  // namespace

TEST_CASE("every segment can be attached again and says what it holds") {
  Session session;
  CHECK(session.control->payload_bytes() == payload_bytes);
  CHECK(session.control->step_bytes() == (1u << 20));
  const tq::PayloadSegment again(session.payload_fd.get(), session.name);
  CHECK(again.payload_bytes() == payload_bytes);
  CHECK(again.backed_bytes() == (8u << 20));
}

TEST_CASE("attaching checks the header before anything else, and names the segment") {
  Session session;
  const auto attach = [&] { tq::PayloadSegment(session.payload_fd.get(), session.name); };
  const auto refused = [&](ErrorCode code, const std::string& why) {
    const tq::Error error = error_of(attach);
    CHECK(error.code == code);
    CHECK_MESSAGE(contains(error.what(), "payload segment of session 'native'"), error.what());
    CHECK_MESSAGE(contains(error.what(), why), error.what());
  };
  SUBCASE("another layout version") {
    poke(session.payload_fd, offsetof(SegmentHeader, version), tq::layout::layout_version + 1);
    refused(ErrorCode::layout_mismatch, "layout version " + std::to_string(tq::layout::layout_version + 1));
  }
  SUBCASE("another build") {
    poke(session.payload_fd, offsetof(SegmentHeader, fingerprint), std::uint64_t{1});
    refused(ErrorCode::layout_mismatch, "another build");
  }
  SUBCASE("never finished") {
    poke(session.payload_fd, offsetof(SegmentHeader, magic), std::uint64_t{0});
    refused(ErrorCode::corrupt, "never finished");
  }
  SUBCASE("something else") {
    poke(session.payload_fd, offsetof(SegmentHeader, magic), std::uint64_t{42});
    refused(ErrorCode::corrupt, "mark");
  }
  SUBCASE("the wrong kind") {
    // The table is larger than this payload, which would be the first thing wrong with it.
    const tq::Error error = error_of([&] { tq::PayloadSegment(session.table_fd.get(), session.name); });
    CHECK(error.code == ErrorCode::layout_mismatch);
    CHECK_MESSAGE(contains(error.what(), "kind 2"), error.what());
  }
  SUBCASE("cut to nothing") {
    REQUIRE(::ftruncate(session.payload_fd.get(), 10) == 0);
    refused(ErrorCode::corrupt, "has 10 bytes");
  }
  SUBCASE("cut in the middle") {
    REQUIRE(::ftruncate(session.payload_fd.get(), 1 << 20) == 0);
    refused(ErrorCode::corrupt, "says that it has");
  }
  SUBCASE("of another session") {
    const tq::Error error = error_of([&] { tq::PayloadSegment(session.payload_fd.get(), "other"); });
    CHECK(error.code == ErrorCode::corrupt);
    CHECK_MESSAGE(contains(error.what(), "another session"), error.what());
  }
  SUBCASE("an empty file") {
    const tq::FileDescriptor empty = session.directory.file("empty");
    CHECK(error_of([&] { tq::ControlSegment(empty.get(), session.name); }).code == ErrorCode::corrupt);
  }
}

TEST_CASE("a session of another pid namespace is refused with both named") {
  Session session;
  poke(session.control_fd, offsetof(tq::layout::ControlLayout, pid_namespace), std::uint64_t{7});
  const tq::Error error = error_of([&] { tq::ControlSegment(session.control_fd.get(), session.name); });
  CHECK(error.code == ErrorCode::layout_mismatch);
  CHECK_MESSAGE(contains(error.what(), "pid namespace 7"), error.what());
  CHECK_MESSAGE(contains(error.what(), std::to_string(tq::pid_namespace())), error.what());
}

TEST_CASE("descriptors do not survive exec") {
  const Session session;
  CHECK((::fcntl(session.payload->fd(), F_GETFD) & FD_CLOEXEC) != 0);
  const tq::FileDescriptor copy = tq::FileDescriptor::duplicate(session.payload->fd());
  CHECK((::fcntl(copy.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a failed attach leaves the session as it was") {
  Session session;
  const int code = in_child([&] {
    const rlimit small{64u << 20, 64u << 20};
    if (::setrlimit(RLIMIT_AS, &small) != 0) return 1;
    try {
      tq::PayloadSegment(session.payload_fd.get(), session.name);
    } catch (const tq::Error& error) {
      return error.code == ErrorCode::system && error.errno_value == ENOMEM ? 0 : 2;
    }
    return 3;
  });
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  (void)code;  // the sanitizer's own memory is beyond that limit
#else
  CHECK(code == 0);
#endif
  CHECK(tq::PayloadSegment(session.payload_fd.get(), session.name).backed_bytes() == (8u << 20));
}

}  // namespace tq_test::segment_test
