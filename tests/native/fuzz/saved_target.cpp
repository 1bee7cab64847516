// The tables of a checkpoint, as the index gets them: refused, or loaded into a session that is whole afterwards.
#include "fuzz/index_fixture.hpp"

namespace {

using namespace tq_fuzz;
using tq::SavedSession;

struct Place {
  IndexFixture fixture;
  SavedSession saved;
  Place() {
    fixture.restore();
    const auto index = fixture.open();
    saved = index->save([](const auto&) { return true; })->session;
  }
};

Place& place() {
  static Place instance;
  return instance;
}

template <class T>
T* some(std::vector<T>& values, Input& in) {
  return values.empty() ? nullptr : &values[in.below(values.size())];
}

std::int64_t odd(Input& in) { return static_cast<std::int64_t>(in.odd_number()); }

// One change of one table; what stands together in a file changes together.
void change(SavedSession& saved, Input& in) {
  switch (in.number<std::uint8_t>() % 12) {
    case 0: saved.next_row = odd(in); return;
    case 1:
      if (auto* name = some(saved.partitions, in)) edit(*name, in);
      return;
    case 2:
      if (auto* block = some(saved.blocks, in)) {
        std::int64_t* const numbers[] = {&block->partition, &block->n_rows};
        const std::size_t which = in.below(3);
        if (which == 2) {
          block->elsewhere_bytes = in.odd_number();
        } else {
          *numbers[which] = odd(in);
        }
      }
      return;
    case 3:
      if (auto* block = some(saved.blocks, in)) {
        if (auto* field = some(block->fields, in)) {
          std::uint64_t* const numbers[] = {&field->data_offset, &field->data_nbytes, &field->row_nbytes, &field->offsets_offset};
          *numbers[in.below(4)] = in.odd_number();
          field->kind = static_cast<tq::FieldKind>(in.number<std::uint8_t>() % 3);
        }
      }
      return;
    case 4:
      if (auto* run = some(saved.runs, in)) {
        std::int64_t* const numbers[] = {&run->partition, &run->first, &run->count, &run->n_cells};
        *numbers[in.below(4)] = odd(in);
      }
      return;
    case 5:
      if (auto* cell = some(saved.cells, in)) {
        std::int64_t* const numbers[] = {&cell->block, &cell->block_row, &cell->n_fields};
        *numbers[in.below(3)] = odd(in);
      }
      return;
    case 6:
      if (auto* field = some(saved.cell_fields, in)) *field = odd(in);
      return;
    case 7:
      if (auto* row = some(saved.rows, in)) (in.number<std::uint8_t>() % 2 == 0 ? row->partition : row->row) = odd(in);
      return;
    case 8: {
      tq::StringColumn& column = in.number<std::uint8_t>() % 2 == 0 ? saved.keys : saved.tags;
      if (auto* end = some(column.ends, in)) *end = odd(in);
      return;
    }
    case 9: edit(in.number<std::uint8_t>() % 2 == 0 ? saved.keys.bytes : saved.tags.bytes, in); return;
    case 10:
      if (auto* task = some(saved.tasks, in)) {
        task->partition = odd(in);
        if (auto* range = some(task->consumed, in)) (in.number<std::uint8_t>() % 2 == 0 ? range->first : range->count) = odd(in);
      }
      return;
    default:
      switch (in.below(5)) {
        case 0: saved.runs.resize(in.below(saved.runs.size() + 1)); return;
        case 1: saved.cells.resize(in.below(saved.cells.size() + 1)); return;
        case 2: saved.blocks.resize(in.below(saved.blocks.size() + 1)); return;
        case 3: saved.known_fields.resize(in.below(saved.known_fields.size() + 1)); return;
        default: saved.rows.resize(in.below(saved.rows.size() + 1)); return;
      }
  }
}

void run(std::string_view input) {
  Input in(input);
  const auto order = in.number<std::uint8_t>();
  SavedSession saved = place().saved;
  for (int edits = 0; edits < 8 && !in.empty(); ++edits) change(saved, in);
  place().fixture.restore();
  const auto index = place().fixture.open();
  bool loaded = false;
  // `invalid`: tables that are no session; the caller knows the file and says so.
  typed("replace", [&] {
    std::vector<tq::Reservation> reservations;
    for (const tq::SavedBlock& block : saved.blocks) {
      const auto reservation = index->reserve(block.nbytes, living_owner);
      if (!reservation) return;
      reservations.push_back(*reservation);
    }
    index->replace(saved, reservations, living_owner);
    loaded = true;
  }, true);
  if (!loaded) return;
  try {
    index->check();
  } catch (const tq::Error& error) {
    require(false, error.what());
  }
  use_index(*index, order);
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {{}};
  for (std::uint8_t kind = 0; kind < 12; ++kind) {
    for (std::uint8_t number = 0; number < 6; ++number) {
      all.push_back(InputWriter().number(kind).number(kind).number(std::uint16_t{number}).number(std::uint16_t{number})
                        .number(number).number(std::uint8_t{3}).bytes());
    }
  }
  return all;
}

const Registration registration("saved_tables", run, seeds);

}  // namespace
