#include "bind/columns.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bind/gil.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using Type = std::shared_ptr<const ColumnType>;

// Layouts of rows that were put one by one lie all over the memory: asked for this many pieces ahead.
constexpr std::size_t prefetched_pieces = 16;

void prefetch(const FieldLayout* layout) {
  __builtin_prefetch(layout);
  __builtin_prefetch(reinterpret_cast<const char*>(layout) + sizeof(FieldLayout) - 1);
}

// How one field is read: by a request, or (type null) by the codec.
struct Plan {
  Type type;  // of the first row: its tag is what the codec gets
  ColumnKind kind = ColumnKind::bytes;
  std::vector<std::int64_t> row_shape;
  std::uint64_t unit_nbytes = 1;
};

// The types of all rows of a field, in one type where that is possible: all alike, or rows of one dtype that differ in the
// size of their first dimension only, which is a ragged column.
Plan plan(const Resolved& resolved, ColumnTypes& types, std::size_t field) {
  Plan result;
  Type last;
  std::uint32_t last_schema = 0;
  bool ragged = false;
  const std::int64_t* begin = nullptr;
  const std::int64_t* end = nullptr;
  const auto layout_of = [&](const Piece& piece) { return resolved.layout(field, static_cast<std::size_t>(piece.block)); };
  const std::vector<Piece>& pieces = resolved.pieces(field);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    if (p + prefetched_pieces < pieces.size()) prefetch(layout_of(pieces[p + prefetched_pieces]));
    const FieldLayout* layout = layout_of(pieces[p]);
    if (layout == nullptr) return {};  // the codec names it
    if (last_schema != 0 && last_schema == layout->schema_id) continue;
    last_schema = layout->schema_id;
    last = types.of(*layout);
    if (!last) return {};
    if (!result.type) {
      result.type = last;
      const bool is_dense = last->kind == ColumnKind::dense;
      begin = last->row_shape.data() + (is_dense && !last->row_shape.empty() ? 1 : 0);
      end = last->row_shape.data() + last->row_shape.size();
      continue;
    }
    const ColumnType& first = *result.type;
    if (!ragged && first.same_rows(*last)) continue;
    if (!ragged && !first.has_steps(first.element, begin, end)) return {};
    if (!last->has_steps(first.element, begin, end)) return {};
    ragged = true;
  }
  if (!result.type) return {};
  const ColumnType& first = *result.type;
  result.kind = ragged ? ColumnKind::ragged : first.kind;
  if (ragged) {
    result.row_shape.assign(begin, end);
    const bool is_dense = first.kind == ColumnKind::dense;
    result.unit_nbytes = is_dense ? first.unit_nbytes / static_cast<std::uint64_t>(first.row_shape[0]) : first.unit_nbytes;
  } else {
    result.row_shape = first.row_shape;
    result.unit_nbytes = first.unit_nbytes;
  }
  return result;
}

std::int64_t covered_rows(const Resolved& resolved, std::size_t field) {
  std::int64_t rows = 0;
  for (const Piece& piece : resolved.pieces(field)) rows += piece.count;
  return rows;
}

// Numbers of the named fields; -1 for one that was not resolved. Mostly they are asked for in the order of the resolution.
std::vector<std::int64_t> numbers_of(const Resolved& resolved, const std::vector<std::string>& names) {
  const std::vector<std::string>& fields = resolved.resolution().fields;
  std::vector<std::int64_t> numbers(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i < fields.size() && fields[i] == names[i]) {
      numbers[i] = static_cast<std::int64_t>(i);
      continue;
    }
    const auto found = std::find(fields.begin(), fields.end(), names[i]);
    numbers[i] = found == fields.end() ? -1 : found - fields.begin();
  }
  return numbers;
}

// Offsets as tensors: one for all columns with equal ones, whose ragged sizes are then the same for torch.
class Offsets {
 public:
  explicit Offsets(std::int64_t rows) : size_(static_cast<std::size_t>(rows) + 1) {}
  std::size_t number_of(const std::shared_ptr<std::int64_t[]>& steps) {
    for (std::size_t i = 0; i < distinct_.size(); ++i) {
      if (std::equal(steps.get(), steps.get() + size_, distinct_[i].get())) return i;
    }
    distinct_.push_back(steps);
    return distinct_.size() - 1;
  }
  nb::list capsules() const {
    nb::list result;
    for (const auto& steps : distinct_) {
      result.append(to_capsule(steps.get(), int64_elements, {static_cast<std::int64_t>(size_)}, steps));
    }
    return result;
  }

 private:
  const std::size_t size_;
  std::vector<std::shared_ptr<std::int64_t[]>> distinct_;
};

nb::object capsule_of(const Plan& plan, Column& column, std::int64_t rows) {
  if (!column.data) return nb::none();
  void* data = column.data.get();
  if (plan.kind == ColumnKind::bytes) return to_capsule(data, column.nbytes, std::move(column.data));
  std::vector<std::int64_t> shape;
  shape.reserve(plan.row_shape.size() + 1);
  shape.push_back(plan.kind == ColumnKind::dense ? rows : static_cast<std::int64_t>(column.nbytes / plan.unit_nbytes));
  shape.insert(shape.end(), plan.row_shape.begin(), plan.row_shape.end());
  return to_capsule(data, plan.type->element, std::move(shape), std::move(column.data));
}

}  // namespace

ColumnsOfGet columns(Resolved& self, ColumnTypes& types, const Strings& fields, bool views, bool shared,
                  std::uint64_t copy_below) {
  const std::vector<std::int64_t> numbers = numbers_of(self, to_strings(fields, "fields"));
  const auto rows = static_cast<std::int64_t>(self.resolution().indexes.size());
  std::vector<Plan> plans(numbers.size());
  std::vector<ColumnRequest> requests;
  requests.reserve(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0) continue;
    const auto field = static_cast<std::size_t>(numbers[i]);
    if (rows == 0 || covered_rows(self, field) != rows) continue;
    plans[i] = plan(self, types, field);
    if (plans[i].type) requests.push_back({field, plans[i].kind, plans[i].unit_nbytes});
  }
  const ReadMode mode = !views ? ReadMode::copy : shared ? ReadMode::shared : ReadMode::cow;
  std::vector<Column> read;
  if (!requests.empty()) read = without_gil([&] { return self.read(requests, mode, std::max<std::uint64_t>(copy_below, 1)); });

  nb::dict result;
  nb::list rest;
  Offsets offsets(rows);
  std::uint64_t viewed_nbytes = 0;
  std::uint64_t copied_nbytes = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    const nb::object name = fields[i];
    if (!plan.type) {
      result[name] = nb::none();
      rest.append(nb::make_tuple(name, nb::none()));
      continue;
    }
    Column& column = read[next++];
    (column.viewed ? viewed_nbytes : copied_nbytes) += column.nbytes;
    const nb::object capsule = capsule_of(plan, column, rows);
    if (plan.kind == ColumnKind::dense && plan.type->ready) {
      result[name] = types.adopt(capsule);
      continue;
    }
    result[name] = nb::none();
    const int kind = static_cast<int>(plan.kind);
    const nb::object parts =
        plan.kind == ColumnKind::ragged
            ? nb::make_tuple(kind, plan.type->tag, capsule, offsets.number_of(column.steps), column.shortest, column.longest)
            : nb::make_tuple(kind, plan.type->tag, capsule);
    rest.append(nb::make_tuple(name, parts));
  }
  return nb::borrow<ColumnsOfGet>(nb::make_tuple(result, rest, offsets.capsules(), viewed_nbytes, copied_nbytes));
}

}  // namespace tq::bind
