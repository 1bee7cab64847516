#include "core/index/rowinfo.hpp"

#include "core/index/tag_map.hpp"

namespace tq::index {
namespace {

// Rows without key and tags between two that have some are kept in one chunk up to this distance.
constexpr std::int64_t max_gap_rows = 8;

Key chunk_key(PartitionId partition, RowIndex row) { return Key(Table::rowinfo).u32(partition).row(row); }

}  // namespace

bool RowInfoReader::accept(bool found) {
  valid_ = found && key_u32(cursor_.tail(), 0) == partition_;
  if (!valid_) return false;
  start_ = key_row(cursor_.tail(), 4);
  Reader in(cursor_.value());
  count_ = in.number<std::uint32_t>();
  if (count_ == 0 || count_ > max_chunk_rows || !may_exist(start_)) corrupt("a chunk of keys and tags of rows that cannot exist");
  ends_ = in.bytes(static_cast<std::uint64_t>(count_) * 8);
  bytes_ = in.bytes(in.left());
  return true;
}

void RowInfoReader::stand_on(std::int64_t i) {
  const char* at = ends_.data() + 8 * i;
  const std::uint32_t begin = i == 0 ? 0 : load<std::uint32_t>(at - 4);
  const auto key_end = load<std::uint32_t>(at);
  const auto tags_end = load<std::uint32_t>(at + 4);
  if (begin > key_end || key_end > tags_end || tags_end > bytes_.size()) corrupt("a key or tag outside of its chunk");
  key_ = bytes_.substr(begin, key_end - begin);
  tags_ = bytes_.substr(key_end, tags_end - key_end);
}

bool RowInfoReader::seek(RowIndex row) {
  key_ = tags_ = {};
  if (!covers(row)) {
    // In ascending walks the answer is mostly the next chunk, or that the row lies in the gap before it.
    bool between = false;
    if (valid_ && row >= start_ + count_) between = !accept(cursor_.next()) || row < start_;
    if (!covers(row) && !between) {
      const Key key = chunk_key(partition_, row);
      if (!(accept(cursor_.seek(key)) && start_ == row)) accept(cursor_.last_before(key));
    }
  }
  if (!covers(row)) return false;
  stand_on(row - start_);
  return true;
}

std::optional<RowIndex> RowInfoReader::next_named(RowIndex row) {
  if (!covers(row) && !seek(row)) {
    if (!accept(cursor_.seek(chunk_key(partition_, row)))) return std::nullopt;
    row = start_;
  }
  for (;;) {
    for (; row < start_ + count_; ++row) {
      stand_on(row - start_);
      if (!key_.empty() || !tags_.empty()) return row;
    }
    if (!accept(cursor_.next())) return std::nullopt;
    row = start_;
  }
}

void RowInfoWriter::finish_chunk() {
  if (ends_.empty()) return;
  Writer out;
  out.number(static_cast<std::uint32_t>(ends_.size() / 2));
  for (const std::uint32_t end : ends_) out.number(end);
  finished_.push_back({start_, std::string(out.bytes(bytes_).view())});
  ends_.clear();
  bytes_.clear();
}

void RowInfoWriter::add(RowIndex row, std::string_view key, std::string_view tags) {
  if (key.empty() && tags.empty()) return;
  const auto count = static_cast<std::int64_t>(ends_.size() / 2);
  const std::int64_t gap = ends_.empty() ? 0 : row - (start_ + count);
  const std::size_t nbytes = 4 + (ends_.size() + 2 + 2 * static_cast<std::size_t>(gap)) * 4 + bytes_.size() + key.size() + tags.size();
  if (gap > max_gap_rows || count + gap >= max_chunk_rows || nbytes > max_chunk_nbytes) finish_chunk();
  if (ends_.empty()) {
    start_ = row;
  } else {
    ends_.resize(ends_.size() + 2 * static_cast<std::size_t>(gap), static_cast<std::uint32_t>(bytes_.size()));
  }
  if (bytes_.size() + key.size() + tags.size() > 0xffffffff) {
    throw Error(ErrorCode::invalid, "the tags of row " + std::to_string(row) + " have more than 4 GiB");
  }
  ends_.push_back(static_cast<std::uint32_t>(bytes_.append(key).size()));
  ends_.push_back(static_cast<std::uint32_t>(bytes_.append(tags).size()));
}

void RowInfoWriter::write(RowIndex replaced) {
  finish_chunk();
  bool stays = replaced < 0;
  for (const Chunk& chunk : finished_) stays = stays || chunk.start == replaced;
  if (!stays) txn_.erase(chunk_key(partition_, replaced));
  for (const Chunk& chunk : finished_) txn_.put(chunk_key(partition_, chunk.start), chunk.value);
  finished_.clear();
}

void RowInfoWriter::apply(const std::vector<RowUpdate>& updates) {
  for (std::size_t i = 0; i < updates.size();) {
    // Views into pages end with the first write, so the chunk at hand is read out and closed before it is written.
    RowIndex replaced = -1;
    {
      RowInfoReader reader(txn_, partition_);
      if (reader.seek(updates[i].row)) {
        replaced = reader.start_;
        for (std::int64_t k = 0; k < reader.count_; ++k) {
          const RowIndex row = reader.start_ + k;
          reader.stand_on(k);
          if (i == updates.size() || updates[i].row != row) {
            add(row, reader.key(), reader.tags());
            continue;
          }
          const RowUpdate& update = updates[i++];
          if (update.remove) {
            if (!reader.key().empty()) removed_keys.push_back({row, std::string(reader.key())});
          } else if (update.tags.empty()) {
            add(row, update.key.empty() ? reader.key() : update.key, reader.tags());
          } else {
            add(row, update.key.empty() ? reader.key() : update.key, merge_tag_maps(reader.tags(), update.tags));
          }
        }
      } else {
        // No chunk covers the row: new ones, up to where the next chunk starts.
        const bool bounded = reader.accept(reader.cursor_.seek(chunk_key(partition_, updates[i].row)));
        for (; i < updates.size() && (!bounded || updates[i].row < reader.start_); ++i) {
          const RowUpdate& update = updates[i];
          if (!update.remove) add(update.row, update.key, update.tags.empty() ? std::string() : merge_tag_maps({}, update.tags));
        }
      }
    }
    write(replaced);
  }
}

}  // namespace tq::index
