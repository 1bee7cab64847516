#include "core/memory/spill_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory/lease.hpp"
#include "core/memory/private_mapping.hpp"
#include "memory/support.hpp"

namespace tq_test::spill_file_test {

using tq::ErrorCode;

namespace {

constexpr std::uint64_t spill_bytes = 8u << 20;
constexpr std::uint64_t header_bytes = 65536;

struct Spilling : Session {
  tq::FileDescriptor spill_fd = directory.file("spill");
  std::unique_ptr<tq::SpillFile> spill;
  Spilling() {
    tq::SpillFile::format(spill_fd.get(), payload_fd.get(), name, spill_bytes);
    spill = std::make_unique<tq::SpillFile>(spill_fd.get(), name, *payload);
    payload->set_spill(spill.get());
  }
};

tq::Span on_disk(std::uint64_t offset, std::uint64_t nbytes) { return {tq::spill_base + offset, nbytes}; }

}  // namespace

TEST_CASE("what is written to the file is what every mapping of it shows") {
  Spilling session;
  CHECK(session.spill->backed_bytes() == 0);
  CHECK(session.spill->grow(1u << 20) == 1u << 20);
  const std::vector<std::byte> bytes(300'000, std::byte{7});
  const tq::Span span = on_disk(4096, bytes.size());
  CHECK(session.spill->write(span, bytes.data()));
  CHECK(all_equal(session.spill->readable(span), bytes.size(), 7));
  const tq::SpillFile another(session.spill_fd.get(), session.name, *session.payload);
  CHECK(another.backed_bytes() == 1u << 20);
  CHECK(all_equal(another.readable(span), bytes.size(), 7));
  CHECK(&session.payload->region(span) == session.spill.get());
  CHECK(&session.payload->region({4096, 1}) == session.payload.get());

  const tq::BlockRef block = tq::BlockRef::make(1, 0);
  session.table->ensure(block);
  session.table->set_live(block);
  {
    const auto view = tq::PrivateMapping::map(region_of(session.payload, span), span, tq::lease_own_block(session.leases, block));
    CHECK(all_equal(view->at(0, span.nbytes), span.nbytes, 7));
    std::memset(view->at(0, span.nbytes), 9, span.nbytes);
    CHECK(all_equal(session.spill->readable(span), span.nbytes, 7));
  }
  const auto shared = tq::read_only_view(region_of(session.payload, span), span, tq::lease_own_block(session.leases, block), 0, 100);
  CHECK(all_equal(shared.get(), 100, 7));
}

TEST_CASE("spans of the other region, and beyond the end, are refused") {
  Spilling session;
  CHECK(error_of([&] { session.spill->readable({0, 10}); }).code == ErrorCode::invalid);
  CHECK(error_of([&] { session.spill->readable(on_disk(spill_bytes, 1)); }).code == ErrorCode::invalid);
  CHECK(error_of([&] { session.payload->readable(on_disk(0, 1)); }).code == ErrorCode::invalid);
  CHECK(error_of([&] { session.payload->writable(on_disk(0, 1)); }).code == ErrorCode::invalid);
  session.payload->set_spill(nullptr);
  CHECK(error_of([&] { session.payload->region(on_disk(0, 1)); }).code == ErrorCode::corrupt);
}

TEST_CASE("a file that is cut, replaced or another's is refused") {
  Spilling session;
  const auto attach = [&](int fd, const std::string& name) { tq::SpillFile(fd, name, *session.payload); };
  CHECK(error_of([&] { attach(session.spill_fd.get(), "other"); }).code == ErrorCode::corrupt);
  CHECK(error_of([&] { attach(session.payload_fd.get(), session.name); }).code == ErrorCode::layout_mismatch);
  const tq::FileDescriptor again = session.directory.file("again");
  const tq::FileDescriptor payload = session.directory.file("payload");
  tq::PayloadSegment::format(payload.get(), session.name, payload_bytes);
  tq::SpillFile::format(again.get(), payload.get(), session.name, spill_bytes);
  CHECK(error_of([&] { attach(again.get(), session.name); }).code == ErrorCode::corrupt);  // of an earlier session of the name
  session.spill->check_length();
  REQUIRE(::ftruncate(session.spill_fd.get(), header_bytes + 4096) == 0);
  CHECK(error_of([&] { session.spill->check_length(); }).code == ErrorCode::corrupt);
  CHECK(error_of([&] { attach(session.spill_fd.get(), session.name); }).code == ErrorCode::corrupt);
}

TEST_CASE("what is a spill file, and what is not") {
  Spilling session;
  CHECK(tq::SpillFile::is_one(session.spill_fd.get()));
  CHECK_FALSE(tq::SpillFile::is_one(session.payload_fd.get()));
  const tq::FileDescriptor file = session.directory.file("text");
  CHECK(tq::SpillFile::is_one(file.get()));  // empty: its creator died
  REQUIRE(::write(file.get(), "notes", 5) == 5);
  CHECK_FALSE(tq::SpillFile::is_one(file.get()));
  const tq::FileDescriptor directory(::open("/dev/shm", O_RDONLY | O_CLOEXEC));
  CHECK_FALSE(tq::SpillFile::is_one(directory.get()));
}

TEST_CASE("space that is given back is set aside again before it is used") {
  Spilling session;
  session.spill->grow(4u << 20);
  const auto occupied = [&] {
    struct stat status {};
    REQUIRE(::fstat(session.spill_fd.get(), &status) == 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  };
  const std::uint64_t before = occupied();
  CHECK(session.spill->punch(on_disk(0, 4u << 20)) == 4u << 20);
  CHECK(occupied() + (4u << 20) == before);
  CHECK(session.spill->ensure_backed(on_disk(0, 1u << 20)));
  CHECK(occupied() + (3u << 20) == before);
}

}  // namespace tq_test::spill_file_test
