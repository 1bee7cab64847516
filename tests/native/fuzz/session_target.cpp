// The segments and lease files of a session, edited before a process attaches: refused, or used without a stray access.
//
// Not edited: the words of the mutexes themselves (one that looks held costs its timeout, which a test shows and a fuzzer would
// wait for), and the marks that say how much of a file is backed (beyond it lies memory that a full file system does not have).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/store/store.hpp"
#include "fuzz/target.hpp"

namespace {

using namespace tq_fuzz;

constexpr std::uint64_t mib = 1u << 20;
const std::string session_name = "fuzz";

struct SavedFile {
  std::string path;
  std::uint64_t nbytes = 0;
  std::string head;  // what is not zero
};

tq::FileDescriptor open_file(const std::string& path, int flags) {
  return tq::FileDescriptor(::open(path.c_str(), flags | O_CLOEXEC, 0600));
}

std::string read_head(const std::string& path, std::uint64_t most) {
  const tq::FileDescriptor fd = open_file(path, O_RDONLY);
  std::string bytes(most, '\0');
  const ssize_t n = ::pread(fd.get(), bytes.data(), most, 0);
  bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  const std::size_t last = bytes.find_last_not_of('\0');
  bytes.resize(last == std::string::npos ? 0 : last + 1);
  return bytes;
}

class SessionFixture {
 public:
  SessionFixture() {
    {
      const auto fds = open_segments(O_RDWR | O_CREAT);
      tq::Store::format(files(fds), {8 * mib, 4 * mib, 1 * mib, 4 * mib});
      tq::Store store(files(fds));
      put(store, "p", {"a", "b", "c"}, 3, 65536);
      put(store, "p", {"d"}, 1, 512);
      put(store, "q", {"e"}, 1, 200'000);
      require(store.spill(1) > 0, "something lies in the spill file");
      // A lease file as a killed process leaves it: the store's own, before it goes.
      resolved_ = store.resolve("p", by_key({"a"}), std::nullopt, true);
      lease_ = read_head(lease_path(store.owner()), 8192);
      lease_nbytes_ = std::filesystem::file_size(lease_path(store.owner()));
      resolved_.reset();
    }
    for (const char* name : {"ctl", "tbl", "dat", "spill", "index/data.mdb", "index/lock.mdb"}) {
      const std::string path = directory_.path() + "/" + name;
      files_.push_back({path, std::filesystem::file_size(path), read_head(path, 2 * mib)});
    }
  }

  static tq::RowSelector by_key(std::vector<std::string> keys) { return {tq::RowsBy::key, 0, {}, std::move(keys)}; }

  static void put(tq::Store& store, const std::string& partition, std::vector<std::string> keys, int value, std::uint64_t row_nbytes) {
    const auto n = static_cast<std::uint64_t>(keys.size());
    const auto block = store.reserve(n * row_nbytes, 0.0, nullptr);
    const std::vector<std::byte> bytes(n * row_nbytes, static_cast<std::byte>(value));
    block->copy_in({{0, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size()}});
    tq::PublishRequest request;
    request.partition = partition;
    request.rows = by_key(std::move(keys));
    request.fields.resize(1);
    request.fields[0].name = "x";
    request.fields[0].row_nbytes = row_nbytes;
    request.fields[0].data_nbytes = n * row_nbytes;
    store.publish(request, block.get());
  }

  std::vector<tq::FileDescriptor> open_segments(int flags) const {
    std::vector<tq::FileDescriptor> fds;
    for (const char* name : {"ctl", "tbl", "dat", "spill"}) fds.push_back(open_file(directory_.path() + "/" + name, flags));
    return fds;
  }
  tq::SessionFiles files(const std::vector<tq::FileDescriptor>& fds) const {
    return {directory_.path(), fds[0].get(), fds[1].get(), fds[2].get(), session_name, fds[3].get()};
  }

  // As it was made, with two lease files of others: number 100's process is dead, number 101's lives while this descriptor does.
  tq::FileDescriptor restore() const {
    for (const SavedFile& file : files_) {
      const tq::FileDescriptor fd = open_file(file.path, O_RDWR | O_TRUNC);
      require(::ftruncate(fd.get(), static_cast<off_t>(file.nbytes)) == 0, "a file has its size");
      require(::pwrite(fd.get(), file.head.data(), file.head.size(), 0) == static_cast<ssize_t>(file.head.size()), "and its bytes");
    }
    for (const auto& item : std::filesystem::directory_iterator(directory_.path() + "/leases")) std::filesystem::remove_all(item.path());
    tq::FileDescriptor living;
    for (const tq::OwnerId owner : {dead, alive}) {
      living = open_file(lease_path(owner), O_RDWR | O_CREAT);
      require(::ftruncate(living.get(), static_cast<off_t>(lease_nbytes_)) == 0, "a lease file has its size");
      require(::pwrite(living.get(), lease_.data(), lease_.size(), 0) == static_cast<ssize_t>(lease_.size()), "and its bytes");
    }
    struct flock whole {};
    whole.l_type = F_WRLCK;
    require(::fcntl(living.get(), F_OFD_SETLK, &whole) == 0, "its lock is held");
    return living;
  }

  std::string lease_path(tq::OwnerId owner) const { return directory_.path() + "/leases/" + std::to_string(owner) + ".lease"; }
  std::string segment(const char* name) const { return directory_.path() + "/" + name; }

  static constexpr tq::OwnerId dead = 100;
  static constexpr tq::OwnerId alive = 101;

 private:
  ScratchDirectory directory_;
  std::vector<SavedFile> files_;
  std::shared_ptr<tq::Resolved> resolved_;
  std::string lease_;
  std::uint64_t lease_nbytes_ = 0;
};

SessionFixture& fixture() {
  static SessionFixture instance;
  return instance;
}

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

// What may be edited of each file.
using tq::layout::ControlLayout;
using tq::layout::LeaseFileLayout;
using tq::layout::PayloadLayout;
const std::vector<Range> header = {{0, 64}};
const std::vector<Range> control_ranges = {
    {0, offsetof(ControlLayout, write_gate)},
    {offsetof(ControlLayout, partition_words), offsetof(ControlLayout, partition_words) + 64},
    {offsetof(ControlLayout, stripes), offsetof(ControlLayout, stripes) + 256},
    {offsetof(ControlLayout, methods), offsetof(ControlLayout, methods) + 512}};
const std::vector<Range> table_ranges = {{0, 64}, {128, 128 + 128}};
const std::vector<Range> payload_ranges = {{0, 64}, {128, 384}, {65536, 65536 + 64}, {448, 640}};
const std::vector<Range> spill_ranges = {{0, sizeof(tq::layout::SpillLayout)}, {65536, 65536 + 64}};
const std::vector<Range> lease_ranges = {
    {0, 192}, {4096, 4096 + 64}, {tq::layout::lease_times_offset, tq::layout::lease_times_offset + 64}};

void edit_file(const std::string& path, const std::vector<Range>& ranges, Input& in) {
  const tq::FileDescriptor fd = open_file(path, O_RDWR);
  if (in.number<std::uint8_t>() % 16 == 0) {  // cut
    static_cast<void>(::ftruncate(fd.get(), static_cast<off_t>(in.odd_number() % (16 * mib))));
    return;
  }
  const Range& range = ranges[in.below(ranges.size())];
  std::string part(range.end - range.begin, '\0');
  if (::pread(fd.get(), part.data(), part.size(), static_cast<off_t>(range.begin)) != static_cast<ssize_t>(part.size())) return;
  const std::size_t nbytes = part.size();
  edit(part, in);
  part.resize(nbytes);
  static_cast<void>(::pwrite(fd.get(), part.data(), nbytes, static_cast<off_t>(range.begin)));
}

void use(tq::Store& store) {
  const std::pair<std::string, std::vector<std::string>> wanted[] = {{"p", {"a", "b", "c", "d"}}, {"q", {"e"}}};
  for (const auto& rows : wanted) {
    typed("get", [&] {
      const auto resolved = store.resolve(rows.first, SessionFixture::by_key(rows.second), std::nullopt, true);
      const auto& pieces = resolved->pieces(0);
      std::uint64_t nbytes = 0;
      for (const std::int64_t row : resolved->row_nbytes(0, pieces)) nbytes += static_cast<std::uint64_t>(row);
      std::vector<std::byte> bytes(nbytes);
      resolved->copy_rows(0, pieces, bytes.data(), nbytes);
      if (!pieces.empty()) resolved->view(static_cast<std::size_t>(pieces[0].block), 0, 64, false);
      resolved->finish();
    }, true);
  }
  typed("put", [&] { SessionFixture::put(store, "p", {"n"}, 5, 100'000); });
  typed("small put", [&] { SessionFixture::put(store, "q", {"m"}, 5, 64); });
  typed("clients", [&] { store.clients(); });
  typed("leases", [&] { store.leases(); });
  typed("stats", [&] { store.stats(); });
  typed("methods", [&] { store.counters().methods(); });
  typed("latency", [&] { store.counters().total(tq::Latency::get).count(); });
  typed("method", [&] { store.counters().add_method("method", {}); });
  typed("clear_rows", [&] { store.clear_rows("p", SessionFixture::by_key({"a", "d"})); });
  typed("reap", [&] { store.reap(); });
  typed("reclaim", [&] { store.reclaim(); });
  typed("populate", [&] { store.populate(256 << 10); });
  typed("make_huge", [&] { store.make_huge(2 * mib); });
  typed("spill", [&] { store.spill(100'000); });
  typed("trim", [&] { store.trim(); });
  typed("wait", [&] { store.wait_word("p", store.wake_word("p") + 1, 0.001); });
  typed("task lock", [&] { store.lock_task("p", "t", 0.01, nullptr); });
  typed("clear_partition", [&] { store.clear_partition("q"); });
  typed("owner", [&] { store.owner(); });
}

void run(std::string_view input) {
  const SessionFixture& made = fixture();
  const tq::FileDescriptor living = made.restore();
  Input in(input);
  for (int edits = 0; edits < 8 && !in.empty(); ++edits) {
    switch (in.number<std::uint8_t>() % 6) {
      case 0: edit_file(made.segment("ctl"), control_ranges, in); break;
      case 1: edit_file(made.segment("tbl"), table_ranges, in); break;
      case 2: edit_file(made.segment("dat"), payload_ranges, in); break;
      case 5: edit_file(made.segment("spill"), spill_ranges, in); break;
      case 3: edit_file(made.lease_path(SessionFixture::dead), lease_ranges, in); break;
      default: edit_file(made.lease_path(SessionFixture::alive), lease_ranges, in); break;
    }
  }
  std::unique_ptr<tq::Store> store;
  const auto fds = made.open_segments(O_RDWR);
  typed("attach", [&] { store = std::make_unique<tq::Store>(made.files(fds)); });
  if (store) use(*store);
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {{}};
  for (std::uint8_t file = 0; file < 6; ++file) {
    all.push_back(InputWriter().number(file).number(std::uint8_t{0}).number(std::uint8_t{4}).number(std::uint8_t{0}).number(std::uint16_t{100}).bytes());
    for (std::uint16_t range = 0; range < 4; ++range) {
      for (std::uint16_t at = 0; at < 64; at = static_cast<std::uint16_t>(at + 8)) {
        all.push_back(InputWriter().number(file).number(std::uint8_t{1}).number(range).number(std::uint8_t{6}).number(at)
                          .number(std::uint8_t{1}).number(static_cast<std::uint8_t>(at)).bytes());
      }
    }
  }
  return all;
}

const Registration registration("session", run, seeds);

}  // namespace
