#include "core/index/layout.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>

#include "core/index/runs.hpp"
#include "core/index/schema_ids.hpp"

namespace tq::index {
namespace {

constexpr std::size_t max_known_schemas = 32;

bool inside(std::uint64_t offset, std::uint64_t nbytes, std::uint64_t end) { return offset <= end && nbytes <= end - offset; }

// Why a field does not lie in its block, or nullptr.
const char* misplaced(const FieldLayout& field, std::uint64_t block_nbytes, std::uint64_t n_rows) {
  if (!inside(field.data_offset, field.data_nbytes, block_nbytes)) return "its bytes end outside of the block";
  switch (field.kind) {
    case FieldKind::dense:
      if (field.row_nbytes != 0 && field.data_nbytes / field.row_nbytes < n_rows) return "it has too few bytes for its rows";
      return nullptr;
    case FieldKind::ragged:
      if (n_rows >= block_nbytes / 8 || !inside(field.offsets_offset, (n_rows + 1) * 8, block_nbytes)) {
        return "its offsets end outside of the block";
      }
      return nullptr;
    case FieldKind::column:
      return nullptr;
  }
  return "it is of an unknown kind";
}

}  // namespace

std::int32_t ParsedBlock::find(FieldId id, std::int32_t hint) const {
  if (hint >= 0 && static_cast<std::size_t>(hint) < ids.size() && ids[static_cast<std::size_t>(hint)] == id) return hint;
  const auto at = std::lower_bound(ids.begin(), ids.end(), id);
  return at != ids.end() && *at == id ? static_cast<std::int32_t>(at - ids.begin()) : -1;
}

void check_layouts(const std::vector<FieldLayout>& fields, std::uint64_t block_nbytes, std::int64_t n_rows) {
  std::set<std::string_view> seen;
  for (const FieldLayout& field : fields) {
    check_name(field.name, "field");
    if (!seen.insert(field.name).second) {
      Error error(ErrorCode::invalid, "field '" + field.name + "' stands twice in one put");
      error.names = {field.name};
      throw error;
    }
    if (const char* why = misplaced(field, block_nbytes, static_cast<std::uint64_t>(n_rows))) {
      Error error(ErrorCode::invalid, "field '" + field.name + "' does not fit a block of " + std::to_string(block_nbytes) +
                                          " bytes and " + std::to_string(n_rows) + " rows: " + why);
      error.names = {field.name};
      throw error;
    }
  }
}

std::string encode_layouts(const std::vector<FieldLayout>& fields, const std::vector<FieldId>& ids) {
  std::vector<std::size_t> order(fields.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
  Writer out;
  std::vector<std::string_view> schemas;
  out.varint(fields.size());
  for (const std::size_t i : order) {
    const FieldLayout& field = fields[i];
    out.varint(ids[i]).number(static_cast<std::uint8_t>(field.kind));
    out.varint(field.data_offset).varint(field.data_nbytes).varint(field.row_nbytes).varint(field.offsets_offset);
    const auto known = std::find(schemas.begin(), schemas.end(), field.schema);
    if (known != schemas.end()) {
      out.varint(static_cast<std::uint64_t>(known - schemas.begin()) + 1);
      continue;
    }
    // Beyond that many they are hardly alike, and looking for one would cost more than writing it.
    if (schemas.size() < max_known_schemas) schemas.push_back(field.schema);
    out.varint(0).varint(field.schema.size()).bytes(field.schema);
  }
  return std::string(out.view());
}

std::shared_ptr<const ParsedBlock> LayoutCache::parse(const Txn& txn, FieldNames& names, BlockRef ref) {
  const auto value = txn.get(Key(Table::blocks).u64(ref.word));
  if (!value) corrupt("a cell names a block that is not there");
  const BlockRecord record = BlockRecord::parse(*value);
  Reader in(BlockRecord::layout_bytes(*value));
  auto block = std::make_shared<ParsedBlock>();
  block->ref = ref;
  block->span = record.span;
  block->n_rows = static_cast<std::int64_t>(record.n_rows);
  const std::uint64_t n = in.varint();
  if (n > std::min(in.left(), max_block_fields)) corrupt("a block with more fields than a block has");
  std::vector<std::string_view> schemas;
  block->ids.reserve(n);
  block->layouts.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t id = in.varint();
    if (id > ~FieldId{0} || (i > 0 && id <= block->ids.back())) corrupt("fields of a block out of order");
    block->ids.push_back(static_cast<FieldId>(id));
    FieldLayout& field = block->layouts.emplace_back();
    field.name = names.name(txn, static_cast<FieldId>(id));
    const auto kind = in.number<std::uint8_t>();
    if (kind > static_cast<std::uint8_t>(FieldKind::column)) corrupt("a field of an unknown kind");
    field.kind = static_cast<FieldKind>(kind);
    field.data_offset = in.varint();
    field.data_nbytes = in.varint();
    field.row_nbytes = in.varint();
    field.offsets_offset = in.varint();
    if (const std::uint64_t known = in.varint(); known == 0) {
      const std::string_view schema = in.bytes(in.varint());
      field.schema = schema;
      if (schemas.size() < max_known_schemas) schemas.push_back(schema);
    } else {
      if (known > schemas.size()) corrupt("a schema that does not stand before");
      field.schema = schemas[known - 1];
    }
    field.schema_id = schema_id(field.schema);
    if (const char* why = misplaced(field, record.span.nbytes, record.n_rows)) corrupt("field '" + field.name + "': " + why);
  }
  in.expect_end();
  return block;
}

std::vector<std::shared_ptr<const ParsedBlock>> LayoutCache::blocks(const Txn& txn, FieldNames& names,
                                                                    const std::vector<BlockRef>& refs) {
  std::vector<std::shared_ptr<const ParsedBlock>> answer(refs.size());
  bool all = true;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < refs.size(); ++i) {
      const auto at = by_ref_.find(refs[i].word);
      if (at != by_ref_.end()) {
        answer[i] = at->second.block;
      } else {
        all = false;
      }
    }
  }
  if (all) return answer;
  std::vector<std::shared_ptr<const ParsedBlock>> parsed;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (!answer[i]) parsed.push_back(answer[i] = parse(txn, names, refs[i]));
  }
  keep(parsed);
  drop_gone(txn, looks_a_block * parsed.size());
  return answer;
}

void LayoutCache::keep(const std::vector<std::shared_ptr<const ParsedBlock>>& parsed) {
  const std::lock_guard lock(mutex_);
  for (const auto& block : parsed) {
    if (by_ref_.contains(block->ref.word)) continue;  // another thread parsed it meanwhile
    order_.push_back(block->ref.word);
    by_ref_.emplace(block->ref.word, Kept{block, std::prev(order_.end())});
    n_fields_ += block->ids.size();
  }
  while (n_fields_ > max_fields && !order_.empty()) drop(order_.front());
}

// A snapshot that is older or newer than another thread's may miss a block that lives: it is parsed again, no more.
void LayoutCache::drop_gone(const Txn& txn, std::size_t looks) {
  std::vector<std::uint64_t> refs;
  {
    const std::lock_guard lock(mutex_);
    if (n_fields_ <= min_fields) return;
    const auto end = std::next(order_.begin(), static_cast<std::ptrdiff_t>(std::min(looks, order_.size())));
    refs.assign(order_.begin(), end);
    order_.splice(order_.end(), order_, order_.begin(), end);
  }
  // Not under the lock, which gets of other threads need.
  std::erase_if(refs, [&](std::uint64_t ref) { return txn.get(Key(Table::blocks).u64(ref)).has_value(); });
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t gone : refs) drop(gone);
}

void LayoutCache::drop(std::uint64_t ref) {
  const auto at = by_ref_.find(ref);
  if (at == by_ref_.end()) return;  // another thread did
  n_fields_ -= at->second.block->ids.size();
  order_.erase(at->second.place);
  by_ref_.erase(at);
}

std::size_t LayoutCache::n_fields() const {
  const std::lock_guard lock(mutex_);
  return n_fields_;
}

}  // namespace tq::index
