#include "memory/support.hpp"

namespace tq_test::payload_segment_test {

using tq::ErrorCode;
using tq::Span;

TEST_CASE("the segment is backed in steps and only grows") {
  Session session(0);
  tq::PayloadSegment& payload = *session.payload;
  CHECK(payload.backed_bytes() == 0);
  const std::uint64_t before = payload.resident_bytes();
  CHECK(payload.grow(1u << 20) == (1u << 20));
  CHECK(payload.resident_bytes() >= before + (1u << 20));
  CHECK(payload.grow(100) == (1u << 20));
  CHECK(payload.grow((1u << 20) + 1) == (1u << 20) + tq::page_bytes());
  CHECK(payload.grow(1u << 30) == payload_bytes);
  CHECK(tq::PayloadSegment(session.payload_fd.get(), session.name).backed_bytes() == payload_bytes);
}

TEST_CASE("the two mappings show the same bytes, to every process") {
  Session session;
  const Span span{1u << 20, 8192};
  std::memset(session.payload->writable(span), 7, span.nbytes);
  CHECK(all_equal(session.payload->readable(span), span.nbytes, 7));
  CHECK(in_child([&] {
          std::memset(session.payload->writable(span), 9, span.nbytes);
          return 0;
        }) == 0);
  CHECK(all_equal(session.payload->readable(span), span.nbytes, 9));
}

TEST_CASE("the read-only mapping kills the offender, never the data") {
  Session session;
  const Span span{0, 4096};
  std::memset(session.payload->writable(span), 7, span.nbytes);
  const int code = in_child([&] {
    ::signal(SIGSEGV, SIG_DFL);
    *const_cast<std::byte*>(session.payload->readable(span)) = std::byte{1};
    return 0;
  });
  CHECK(code == -SIGSEGV);
  CHECK(all_equal(session.payload->readable(span), span.nbytes, 7));
}

TEST_CASE("spans outside the segment are refused") {
  Session session;
  for (const Span span : {Span{payload_bytes, 1}, Span{payload_bytes - 10, 11}, Span{~std::uint64_t{0}, 2}}) {
    CHECK(error_of([&] { session.payload->writable(span); }).code == ErrorCode::invalid);
    CHECK(error_of([&] { session.payload->readable(span); }).code == ErrorCode::invalid);
  }
  CHECK(session.payload->writable({payload_bytes, 0}) != nullptr);
}

TEST_CASE("populate touches and changes nothing; trim gives memory back and back() reserves it again") {
  Session session;
  tq::PayloadSegment& payload = *session.payload;
  const Span span{0, 4u << 20};
  std::memset(payload.writable({0, 100}), 5, 100);
  CHECK(payload.populate(span) == span.nbytes);
  CHECK(all_equal(payload.readable({0, 100}), 100, 5));
  CHECK(payload.touched_bytes() == span.nbytes);
  payload.note_touched({span.nbytes, 1000});
  CHECK(payload.touched_bytes() == span.nbytes + 1000);
  payload.note_touched({span.nbytes + (1u << 20), 1000});  // a small hole counts as warm
  CHECK(payload.touched_bytes() == span.nbytes + (1u << 20) + 1000);
  payload.note_touched({payload_bytes / 2, 10});  // with a gap before it: not warm up to there
  CHECK(payload.touched_bytes() == span.nbytes + (1u << 20) + 1000);

  const std::uint64_t before = payload.resident_bytes();
  const Span inner{(1u << 20) + 100, 1u << 20};
  const std::uint64_t punched = payload.punch(inner);
  CHECK(punched == (1u << 20) - tq::page_bytes());  // whole pages inside it only
  CHECK(payload.resident_bytes() == before - punched);
  CHECK(payload.touched_bytes() == inner.offset);
  CHECK(payload.back(inner));
  CHECK(payload.resident_bytes() == before);
  CHECK(all_equal(payload.readable({inner.offset + 8192, 4096}), 4096, 0));
  CHECK(all_equal(payload.readable({0, 100}), 100, 5));
}

TEST_CASE("a span that somebody trimmed is backed again before it is used") {
  Session session;
  tq::PayloadSegment& payload = *session.payload;
  const Span span{1u << 20, 1u << 20};
  const std::uint64_t before = payload.resident_bytes();
  CHECK(payload.ensure_backed(span));
  // Another process trims; this one learns of it through the segment.
  CHECK(in_child([&] { return tq::PayloadSegment(session.payload_fd.get(), session.name).punch(span) == span.nbytes ? 0 : 1; }) == 0);
  CHECK(payload.resident_bytes() == before - span.nbytes);
  CHECK(payload.ensure_backed({span.offset, 4'096}));
  CHECK(payload.resident_bytes() == before - span.nbytes + 4'096);
  CHECK(payload.ensure_backed(span));
  CHECK(payload.resident_bytes() == before);
}

TEST_CASE("pages around a span") {
  Session session;
  const std::uint64_t page = tq::page_bytes();
  const auto range = session.payload->pages_around({page + 100, page});
  CHECK(range.offset == tq::layout::payload_data_offset + page);
  CHECK(range.nbytes == 2 * page);
  CHECK(range.lead_nbytes == 100);
  CHECK(session.payload->pages_around({page, 0}).nbytes == page);  // something to map for a view of no bytes
}

TEST_CASE("a full file system is an error of grow, and what did not fit is given back") {
  const Directory mount_point("/tmp");
  const int code = in_child([&] {
    if (!mount_small_tmpfs(mount_point.path, 14u << 20)) return 77;  // more than one part of back_range fits, not all
    Session session(1u << 20, mount_point.path);
    const std::uint64_t before = session.payload->resident_bytes();
    try {
      session.payload->grow(payload_bytes);
      return 1;
    } catch (const tq::Error& error) {
      if (error.code != ErrorCode::storage_full || !contains(error.what(), "payload segment")) return 2;
    }
    if (session.payload->backed_bytes() != (1u << 20) || session.payload->resident_bytes() != before) return 3;
    return session.payload->grow(2u << 20) == (2u << 20) ? 0 : 4;
  });
  if (code == 77) {
    MESSAGE("skipped: no tmpfs can be mounted here");
    return;
  }
  CHECK(code == 0);
}

}  // namespace tq_test::payload_segment_test
