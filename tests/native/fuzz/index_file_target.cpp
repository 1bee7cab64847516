// The files of an index, bytes flipped, overwritten, cut: opening says so, or what it says afterwards ends in a typed error.
#include <sys/stat.h>

#include "fuzz/index_fixture.hpp"

namespace {

using namespace tq_fuzz;

IndexFixture& fixture() {
  static IndexFixture instance;
  return instance;
}

void run(std::string_view input) {
  IndexFixture& made = fixture();
  Input in(input);
  const auto order = in.number<std::uint8_t>();
  const std::string data = made.data();
  const std::string lock = made.lock();
  for (int edits = 0; edits < 16 && !in.empty(); ++edits) {
    const auto which = in.number<std::uint8_t>();
    if (which % 16 == 0) {
      std::string head = made.lock().substr(0, 192);
      edit(head, in);
      made.lock().replace(0, 192, head);
    } else {  // in a page, near its beginning and near its end, where headers and nodes are
      const std::size_t page = in.below(made.data().size() / 4096) * 4096;
      if (page + 4096 > made.data().size()) continue;  // cut before
      const std::size_t at = page + (which % 2 == 0 ? 0 : 4096 - 256);
      std::string part = made.data().substr(at, 256);
      edit(part, in);
      part.resize(256);
      made.data().replace(at, 256, part);
    }
  }
  made.restore();
  made.data() = data;
  made.lock() = lock;
  std::unique_ptr<tq::Index> index;
  typed("open", [&] { index = made.open(); });
  if (index) use_index(*index, order);
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {{}};
  const std::size_t n_pages = fixture().data().size() / 4096;
  const auto byte = [](std::size_t value) { return static_cast<std::uint8_t>(value); };
  for (std::size_t page = 0; page < n_pages; ++page) {
    for (std::uint16_t at = 0; at < 64; at = static_cast<std::uint16_t>(at + 2)) {
      all.push_back(InputWriter().number(byte(page)).number(byte(2)).number(static_cast<std::uint16_t>(page)).number(byte(4))
                        .number(at).number(byte(page + at)).number(byte(at + 3)).bytes());
    }
  }
  for (std::uint16_t at = 0; at < 192; at = static_cast<std::uint16_t>(at + 4)) {
    all.push_back(InputWriter().number(byte(0)).number(byte(16)).number(byte(5)).number(at).number(byte(at)).number(byte(3)).bytes());
  }
  return all;
}

const Registration registration("index_file", run, seeds);

}  // namespace
