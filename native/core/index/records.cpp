#include "core/index/records.hpp"

namespace tq::index {

Format Format::parse(std::string_view bytes) {
  if (bytes.size() < 12 || load<std::uint64_t>(bytes.data()) != format_magic) {
    throw Error(ErrorCode::layout_mismatch, "the index is not one of this system; attach to a session directory that it made");
  }
  Reader in(bytes.substr(8));
  if (const auto version = in.number<std::uint32_t>(); version != format_version) {
    throw Error(ErrorCode::layout_mismatch, "the index has format " + std::to_string(version) + " and this build reads format " +
                                                std::to_string(format_version) + "; attach with the build that created it");
  }
  Format format;
  format.payload_bytes = in.number<std::uint64_t>();
  format.spill_bytes = in.number<std::uint64_t>();
  format.max_slots = in.number<std::uint32_t>();
  for (auto& word : format.hash_seed) word = in.number<std::uint64_t>();
  in.expect_end();
  if (format.max_slots == 0 || format.max_slots > 1u << BlockRef::slot_bits) corrupt("a format with an impossible number of blocks");
  return format;
}

std::string Format::encode() const {
  Writer out;
  out.number(format_magic).number(format_version).number(payload_bytes).number(spill_bytes).number(max_slots);
  return std::string(out.number(hash_seed[0]).number(hash_seed[1]).view());
}

Counters Counters::parse(std::string_view bytes) {
  if (bytes.size() != sizeof(Counters)) corrupt("counters of another size");
  Counters counters;
  std::memcpy(&counters, bytes.data(), sizeof counters);
  constexpr auto last_generation = ~std::uint64_t{0} >> BlockRef::slot_bits;
  if (!may_exist(counters.next_row) || counters.next_generation == 0 || counters.next_generation > last_generation) {
    corrupt("counters that never were");
  }
  if (!may_exist(counters.first_row) || counters.first_row % rows_of_a_node != 0 || counters.next_row < counters.first_row ||
      !may_exist(counters.other_rows) || counters.other_end < 0 || counters.other_end > row_limit) {
    corrupt("counters of rows that never were");
  }
  if (counters.headroom_end > counters.headroom_bytes) corrupt("counters of more headroom than there is");
  return counters;
}

PartitionRecord PartitionRecord::parse(std::string_view bytes) {
  Reader in(bytes);
  PartitionRecord record;
  record.version = in.number<std::uint64_t>();
  record.rows = static_cast<std::int64_t>(in.number<std::uint64_t>());
  record.keyed_rows = static_cast<std::int64_t>(in.number<std::uint64_t>());
  record.live_bytes = in.number<std::uint64_t>();
  record.doomed_rows = static_cast<std::int64_t>(in.number<std::uint64_t>());
  record.limited = in.number<std::uint8_t>() != 0;
  record.name = in.bytes(in.left());
  if (!may_exist(record.rows) || !may_exist(record.keyed_rows) || !may_exist(record.doomed_rows)) {
    corrupt("a partition with an impossible number of rows");
  }
  return record;
}

std::string PartitionRecord::encode() const {
  Writer out;
  out.number(version).number(static_cast<std::uint64_t>(rows)).number(static_cast<std::uint64_t>(keyed_rows));
  out.number(live_bytes).number(static_cast<std::uint64_t>(doomed_rows)).number(static_cast<std::uint8_t>(limited));
  return std::string(out.bytes(name).view());
}

namespace {

constexpr std::size_t says_elsewhere_at = 5 * 8 + 4;  // in a block's head

// `part` of `whole` cells, of so many bytes.
std::uint64_t share(std::uint64_t nbytes, std::uint64_t part, std::uint64_t whole) {
  __extension__ using Wide = unsigned __int128;
  return whole == 0 ? 0 : static_cast<std::uint64_t>(static_cast<Wide>(nbytes) * part / whole);
}

}  // namespace

BlockRecord BlockRecord::parse(std::string_view bytes) {
  Reader in(bytes);
  BlockRecord record;
  record.span.offset = in.number<std::uint64_t>();
  record.span.nbytes = in.number<std::uint64_t>();
  record.n_rows = in.number<std::uint64_t>();
  record.cells = in.number<std::uint64_t>();
  record.live_cells = in.number<std::uint64_t>();
  record.partition = in.number<std::uint32_t>();
  if (const auto flag = in.number<std::uint32_t>(); flag == 1) {
    record.elsewhere_bytes = in.number<std::uint64_t>();
    if (*record.elsewhere_bytes > max_elsewhere_bytes) corrupt("a block that stands for an impossible number of bytes");
  } else if (flag != 0) {
    corrupt("a block of an unknown kind");
  }
  if (record.live_cells > record.cells) corrupt("a block with more live cells than cells");
  if (record.n_rows > static_cast<std::uint64_t>(max_run_rows)) corrupt("a block with an impossible number of rows");
  return record;
}

void BlockRecord::encode_to(Writer& writer) const {
  writer.number(span.offset).number(span.nbytes).number(n_rows).number(cells).number(live_cells);
  writer.number(partition).number(static_cast<std::uint32_t>(elsewhere_bytes.has_value()));
  if (elsewhere_bytes) writer.number(*elsewhere_bytes);
}

std::string_view BlockRecord::layout_bytes(std::string_view bytes) {
  Reader in(bytes);
  in.bytes(says_elsewhere_at);
  if (in.number<std::uint32_t>() != 0) in.number<std::uint64_t>();
  return in.bytes(in.left());
}

std::uint64_t BlockRecord::live_bytes() const { return share(span.nbytes, live_cells, cells); }

void BlockRecord::remove_cells(std::uint64_t cells_gone) {
  if (elsewhere_bytes) *elsewhere_bytes -= share(*elsewhere_bytes, cells_gone, live_cells);
  live_cells -= cells_gone;
}

std::uint32_t BlockRecord::n_fields(std::string_view layout_bytes) {
  return static_cast<std::uint32_t>(Reader(layout_bytes).varint());
}

RetiredRecord RetiredRecord::parse(std::string_view bytes) {
  Reader in(bytes);
  RetiredRecord record;
  record.span.offset = in.number<std::uint64_t>();
  record.span.nbytes = in.number<std::uint64_t>();
  record.n_rows = in.number<std::uint64_t>();
  record.n_fields = in.number<std::uint32_t>();
  record.partition = in.bytes(in.left());
  return record;
}

std::string RetiredRecord::encode() const {
  Writer out;
  return std::string(out.number(span.offset).number(span.nbytes).number(n_rows).number(n_fields).bytes(partition).view());
}

TaskRecord TaskRecord::parse(std::string_view bytes) {
  Reader in(bytes);
  TaskRecord record;
  record.id = in.number<std::uint64_t>();
  record.version = in.number<std::uint64_t>();
  record.sampler_state = in.bytes(in.left());
  return record;
}

std::string TaskRecord::encode() const {
  Writer out;
  return std::string(out.number(id).number(version).bytes(sampler_state).view());
}

}  // namespace tq::index
