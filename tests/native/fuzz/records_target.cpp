// The records of the index by themselves: bytes in, a record or Error(corrupt) out, and what was read is written as it was.
#include "core/index/bitmap.hpp"
#include "core/index/claims.hpp"
#include "core/index/flow_account.hpp"
#include "core/index/records.hpp"
#include "core/index/tag_map.hpp"
#include "core/memory/layout.hpp"
#include "fuzz/target.hpp"

namespace {

using namespace tq_fuzz;
using namespace tq::index;

constexpr unsigned n_kinds = 8;

void run(std::string_view input) {
  Input in(input);
  const unsigned kind = in.number<std::uint8_t>() % n_kinds;
  const std::string_view bytes = in.rest();
  typed("reading a record", [&] {
    switch (kind) {
      case 0: {
        require(Format::parse(bytes).encode() == bytes, "a format is written as it was read");
        return;
      }
      case 1: require(Counters::parse(bytes).view() == bytes, "counters are written as they were read"); return;
      case 2: {  // a flag may be written in more than one way
        const std::string written = PartitionRecord::parse(bytes).encode();
        require(PartitionRecord::parse(written).encode() == written, "a partition is read as it was written");
        return;
      }
      case 3: {
        const BlockRecord record = BlockRecord::parse(bytes);
        require(record.live_bytes() <= record.span.nbytes, "what lives of a block is no more than the block");
        Writer written;
        record.encode_to(written);
        const std::size_t head = bytes.size() - BlockRecord::layout_bytes(bytes).size();
        require(written.view() == bytes.substr(0, head), "the head of a block is written as it was read");
        BlockRecord less = record;
        less.remove_cells(record.live_cells / 2);
        require(less.held_bytes() <= record.held_bytes(), "fewer cells hold no more");
        less.remove_cells(less.live_cells);
        require(less.held_bytes() == 0 || record.live_cells == 0, "no cells hold nothing");
        return;
      }
      case 4: require(TaskRecord::parse(bytes).encode() == bytes, "a task is written as it was read"); return;
      case 5: {
        Counters counters;
        counters.next_row = 1'000'000;
        const ClaimRecord claim = ClaimRecord::parse(bytes, counters);
        tq::RowIndex end = 0;
        for (const Segment& rows : claim.rows) {
          require(rows.row >= end && rows.count > 0 && rows.count <= 1'000'000 - rows.row, "rows of a claim ascend and exist");
          end = rows.row + rows.count;
        }
        return;
      }
      case 7: {
        const FlowRecord record = FlowRecord::parse(bytes);
        require(record.unconsumed >= 0 && record.first >= 0, "limits count what can be");
        require(FlowRecord::parse(record.encode()).encode() == record.encode(), "an account is read as it was written");
        return;
      }
      default: {
        const RowBitmap bitmap = RowBitmap::parse(bytes);
        std::int64_t count = 0;
        for (std::int64_t row = 0; row < RowBitmap::n_rows; ++row) count += bitmap.test(row);
        require(count == bitmap.count(), "a bitmap has as many rows as are counted");
        const std::string again = bitmap.encode();
        require(again.empty() ? count == 0 : RowBitmap::parse(again).encode() == again, "a bitmap is read as it was written");
        return;
      }
    }
  });
  if (kind != 0) return;
  // Two halves as tag maps, one from the index and one from a caller.
  typed("merging tags", [&] { tq::merge_tag_maps(bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2)); }, true);
}

std::vector<std::string> seeds() {
  Format format;
  format.payload_bytes = 1 << 20;
  format.max_slots = 64;
  PartitionRecord partition;
  partition.rows = 5;
  partition.name = "train";
  BlockRecord block;
  block.span = {0, 4096};
  block.n_rows = block.cells = block.live_cells = 4;
  Writer block_bytes;
  block.encode_to(block_bytes);
  Writer elsewhere_bytes;
  block.elsewhere_bytes = 1'000'003;
  block.encode_to(elsewhere_bytes);
  TaskRecord task;
  task.id = 1;
  task.sampler_state = "state";
  const ClaimRecord claim{7, 100, {{0, 4, 0, 0}, {10, 2, 0, 0}}};
  RowBitmap bitmap;
  bitmap.set_all(17, 1);
  bitmap.set_all(4000, 1);
  RowBitmap stretches;
  stretches.set_all(100, 3000);
  stretches.set_all(4000, 1);
  const Counters counters;
  FlowRecord flow;
  flow.limits = {1 << 20, 100, 3, {"learn", "judge"}, tq::WhenExceeded::shed};
  flow.unconsumed = 7;
  flow.newest = 5;
  const std::vector<std::string> records = {format.encode(),   std::string(counters.view()), partition.encode(),
                                            std::string(block_bytes.view()), task.encode(),  claim.encode(), bitmap.encode(), flow.encode()};
  std::vector<std::string> all;
  for (std::size_t i = 0; i < records.size(); ++i) all.push_back(std::string(1, static_cast<char>(i)) + records[i]);
  const std::string tags{"\x01\0\0\0\x01\0\0\0a\x01\0\0\0\x05", 14};
  all.push_back(std::string(1, '\0') + tags + tags);
  all.push_back(std::string(1, '\6') + stretches.encode());
  all.push_back(std::string(1, '\3') + std::string(elsewhere_bytes.view()));
  return all;
}

const Registration registration("records", run, seeds);

}  // namespace
