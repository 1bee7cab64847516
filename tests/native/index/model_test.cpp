// Thousands of random calls against a model that keeps every cell in a map.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "core/pause.hpp"
#include "index/model_cells.hpp"

using namespace tq_test;

namespace {

class Model : private ModelCells {
 public:
  Model(std::uint64_t index_bytes, unsigned seed)
      : session(index_bytes, std::uint64_t{1} << 34, 1u << 22, std::uint64_t{1} << 34), random(seed) {}

  void step() {
    switch (pick(13)) {
      case 0:
      case 1:
        return put_fresh();
      case 2:
      case 3:
      case 4:
        return put_by_index();
      case 5:
        return put_by_key();
      case 6:
        return clear_rows();
      case 7:
        return pick(6) == 0 ? clear_partition() : merge_tags();
      case 8:
        return move();
      case 9:
        return free_retired();
      case 10:
        return abandon();
      case 11:
        return spill();
      default:
        return resolve();
    }
  }

  void check_everything() {
    check_rows();
    REQUIRE(std::set<std::uint64_t>(retired.begin(), retired.end()) == listed_as_retired());
    REQUIRE(session.gate.entered.load() == session.gate.left.load());
  }

  void check_rows() {
    check_whole_index(session.directory.path());
    std::set<std::string> names;
    for (const auto& [name, rows] : partitions) {
      names.insert(name);
      const tq::RowListing listing = index().list_rows(name);
      bool same = listing.partition_found && listing.indexes.size() == rows.size();
      std::size_t i = 0;
      for (auto row = rows.begin(); same && row != rows.end(); ++row, ++i) {
        same = listing.indexes[i] == row->first && listing.keys[i].value_or("") == row->second.key &&
               listing.tags[i] == map_of(row->second.tags);
      }
      REQUIRE(same);
    }
    const auto listed = index().partitions();
    REQUIRE(std::set<std::string>(listed.begin(), listed.end()) == names);
  }

  int clears_cut_short = 0;
  std::size_t n_spilled = 0;

  Session session;
  std::map<std::string, Partition> partitions;

 private:
  Index& index() { return *session.index; }
  std::uint64_t pick(std::uint64_t n) { return random() % n; }
  std::string some_name() { return "partition " + std::to_string(pick(3)); }

  std::vector<std::string> some_fields() {
    std::vector<std::string> fields;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
      if (pick(2) == 0) fields.push_back(name);
    }
    std::shuffle(fields.begin(), fields.end(), random);
    if (fields.empty()) fields.push_back("a");
    return fields;
  }

  // A third of the blocks are names of payload on other nodes.
  std::optional<std::uint64_t> some_size() { return pick(3) == 0 ? std::optional(pick(1u << 20)) : std::nullopt; }

  // Existing rows: stretches of consecutive ones, sometimes shuffled.
  std::vector<RowIndex> some_rows(const Partition& rows) {
    std::vector<RowIndex> all;
    for (const auto& [row, value] : rows) all.push_back(row);
    std::vector<RowIndex> chosen;
    const std::uint64_t stretches = 1 + pick(4);
    std::set<RowIndex> seen;
    for (std::uint64_t i = 0; i < stretches && !all.empty(); ++i) {
      const std::uint64_t first = pick(all.size());
      const std::uint64_t n = 1 + pick(std::min<std::uint64_t>(all.size() - first, 1 + pick(12)));
      for (std::uint64_t k = first; k < first + n; ++k) {
        if (seen.insert(all[k]).second) chosen.push_back(all[k]);
      }
    }
    if (pick(3) == 0) std::shuffle(chosen.begin(), chosen.end(), random);
    return chosen;
  }

  void check_retired(const std::vector<BlockRef>& answer) {
    std::set<std::uint64_t> said;
    for (const BlockRef ref : answer) said.insert(ref.word);
    REQUIRE(said.size() == answer.size());
    REQUIRE(said == went);
    retired.insert(retired.end(), went.begin(), went.end());
    went.clear();
  }
  std::set<std::uint64_t> listed_as_retired() {
    std::set<std::uint64_t> listed;
    for (const BlockRef ref : index().retired()) listed.insert(ref.word);
    return listed;
  }

  void record_put(const std::string& name, const PublishResult& result, const std::vector<std::string>& fields, BlockRef block,
                  const std::vector<std::map<std::string, std::string>>& tags) {
    Partition& rows = partitions[name];
    for (std::size_t i = 0; i < result.indexes.size(); ++i) {
      Row& row = rows[result.indexes[i]];
      for (const std::string& field : fields) set_cell(row, field, Cell{block.word, static_cast<std::int64_t>(i)});
      if (tags.empty()) continue;
      for (const auto& [tag, value] : tags[i]) row.tags[tag] = value;
    }
    check_retired(result.retired);
    last_row = std::max(last_row, result.indexes.empty() ? -1 : *std::max_element(result.indexes.begin(), result.indexes.end()));
  }

  std::vector<std::map<std::string, std::string>> some_tags(std::size_t n) {
    std::vector<std::map<std::string, std::string>> tags;
    if (pick(3) != 0) return tags;
    tags.resize(n);
    for (auto& each : tags) {
      const std::uint64_t count = pick(3);
      for (std::uint64_t i = 0; i < count; ++i) {
        each["tag" + std::to_string(pick(5))] = std::string(pick(4) == 0 ? pick(1500) : pick(20), 'v');
      }
    }
    return tags;
  }
  static std::vector<std::string> maps_of(const std::vector<std::map<std::string, std::string>>& tags) {
    std::vector<std::string> maps;
    for (const auto& each : tags) maps.push_back(map_of(each));
    return maps;
  }

  void put_fresh() {
    const std::string name = some_name();
    const auto n = static_cast<std::int64_t>(pick(40));
    std::vector<std::string> keys;
    if (pick(2) == 0) {
      for (std::int64_t i = 0; i < n; ++i) keys.push_back("key " + std::to_string(next_key++));
    }
    const auto tags = some_tags(static_cast<std::size_t>(n));
    const bool bare = pick(5) == 0;
    const std::vector<std::string> fields = bare ? std::vector<std::string>{} : some_fields();
    BlockRef block;
    const PublishResult result = put(index(), name, fresh(n, keys), fields, maps_of(tags), &block, bare ? std::nullopt : some_size());
    REQUIRE(result.indexes.size() == static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < result.indexes.size(); ++i) {
      REQUIRE(result.indexes[i] == last_row + 1 + static_cast<RowIndex>(i));
      if (!keys.empty()) partitions[name][result.indexes[i]].key = keys[i];
    }
    partitions[name];  // made by the put, also with no row
    if (!bare && n == 0) went.insert(block.word);
    record_put(name, result, fields, block, tags);
  }

  void put_by_index() {
    const std::string name = some_name();
    if (!partitions.contains(name)) return;
    const std::vector<RowIndex> rows = some_rows(partitions[name]);
    if (rows.empty()) return;
    const std::vector<std::string> fields = some_fields();
    if (pick(6) == 0) {
      // One row of them does not exist: nothing changes.
      std::vector<RowIndex> with_stale = rows;
      with_stale.insert(with_stale.begin() + static_cast<std::ptrdiff_t>(pick(rows.size() + 1)), last_row + 1);
      const tq::Error error = error_of([&] { put(index(), name, by_index(with_stale), fields); });
      REQUIRE(error.code == tq::ErrorCode::stale_rows);
      REQUIRE(error.rows == std::vector<RowIndex>{last_row + 1});
    }
    const auto tags = some_tags(rows.size());
    BlockRef block;
    const PublishResult result = put(index(), name, by_index(rows), fields, maps_of(tags), &block, some_size());
    REQUIRE(result.indexes == rows);
    record_put(name, result, fields, block, tags);
  }

  void put_by_key() {
    const std::string name = some_name();
    std::vector<std::string> keys;
    std::vector<RowIndex> expected;  // -1: new
    if (partitions.contains(name)) {
      for (const RowIndex row : some_rows(partitions[name])) {
        if (partitions[name][row].key.empty()) continue;
        keys.push_back(partitions[name][row].key);
        expected.push_back(row);
      }
    }
    const std::uint64_t n_new = pick(5);
    for (std::uint64_t i = 0; i < n_new; ++i) {
      const std::uint64_t at = pick(keys.size() + 1);
      keys.insert(keys.begin() + static_cast<std::ptrdiff_t>(at), "key " + std::to_string(next_key++));
      expected.insert(expected.begin() + static_cast<std::ptrdiff_t>(at), -1);
    }
    if (keys.empty()) return;
    const std::vector<std::string> fields = some_fields();
    BlockRef block;
    const PublishResult result = put(index(), name, by_key(keys), fields, {}, &block, some_size());
    for (std::size_t i = 0, fresh_rows = 0; i < keys.size(); ++i) {
      const RowIndex row = expected[i] == -1 ? last_row + 1 + static_cast<RowIndex>(fresh_rows++) : expected[i];
      REQUIRE(result.indexes[i] == row);
      partitions[name][row].key = keys[i];
    }
    record_put(name, result, fields, block, {});
    bool found = false;
    REQUIRE(index().find_keys(name, keys, &found) == result.indexes);
    REQUIRE(found);
  }

  void clear_rows() {
    const std::string name = some_name();
    const bool known = partitions.contains(name);
    std::vector<RowIndex> rows = known ? some_rows(partitions[name]) : std::vector<RowIndex>{1};
    if (known && pick(4) == 0) {  // most of the partition
      rows.clear();
      for (const auto& [row, value] : partitions[name]) {
        if (pick(5) != 0) rows.push_back(row);
      }
    }
    RowSelector selector = by_index(rows);
    if (pick(2) == 0 && known) {
      selector = by_key({"no such key"});
      std::erase_if(rows, [&](RowIndex row) { return partitions[name][row].key.empty(); });
      for (const RowIndex row : rows) selector.keys.push_back(partitions[name][row].key);
    } else {
      selector.indexes.push_back(last_row + 5);
      selector.indexes.push_back(rows.empty() ? 0 : rows[0]);
      if (rows.empty() && known && partitions[name].contains(0)) rows.push_back(0);
    }
    const bool cut_short = pick(3) == 0;
    if (cut_short) tq::arm_pause("index.clear.between_batches", tq::PauseAction::fail);
    try {
      const Index::ClearResult result = index().clear_rows(name, selector);
      REQUIRE(result.partition_found == known);
      REQUIRE(result.rows == static_cast<std::int64_t>(known ? rows.size() : 0));
      for (const RowIndex row : rows) remove_if_there(name, row);
      tq::resume_pause("index.clear.between_batches");
      check_retired(result.retired);
    } catch (const tq::Error&) {
      // It died between two batches: the rows are gone for everybody, their records not yet.
      REQUIRE(cut_short);
      tq::resume_pause("index.clear.between_batches");
      ++clears_cut_short;
      for (const RowIndex row : rows) remove_if_there(name, row);
      check_rows();
      for (int i = 0; i < 5; ++i) resolve();
      index().finish_clears();
      check_rows();
      went.clear();
      for (const std::uint64_t block : listed_as_retired()) {
        if (std::find(retired.begin(), retired.end(), block) != retired.end()) continue;
        REQUIRE(live[block] == 0);
        retired.push_back(block);
      }
    }
  }

  void remove_if_there(const std::string& name, RowIndex row) {
    if (partitions.contains(name)) remove_row(partitions[name], partitions[name].find(row));
  }

  void clear_partition() {
    const std::string name = some_name();
    const bool known = partitions.contains(name);
    const Index::ClearResult result = index().clear_partition(name);
    REQUIRE(result.partition_found == known);
    if (known) {
      REQUIRE(result.rows == static_cast<std::int64_t>(partitions[name].size()));
      while (!partitions[name].empty()) remove_row(partitions[name], partitions[name].begin());
      partitions.erase(name);
    }
    check_retired(result.retired);
  }

  void merge_tags() {
    const std::string name = some_name();
    if (!partitions.contains(name)) return;
    const std::vector<RowIndex> rows = some_rows(partitions[name]);
    std::vector<std::map<std::string, std::string>> tags(rows.size());
    for (auto& each : tags) each["tag" + std::to_string(pick(5))] = std::to_string(pick(100));
    index().merge_tags(name, rows, maps_of(tags));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const auto& [tag, value] : tags[i]) partitions[name][rows[i]].tags[tag] = value;
    }
    const tq::RowListing described = index().describe_rows(name, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) REQUIRE(described.tags[i] == map_of(partitions[name][rows[i]].tags));
  }

  // Coalesces rows; half of the time a put or a clear comes between reading and moving, and must win.
  void move() {
    const std::string name = some_name();
    if (!partitions.contains(name)) return;
    const std::vector<RowIndex> rows = some_rows(partitions[name]);
    if (rows.empty()) return;
    const Resolution source = index().resolve(name, by_index(rows), std::nullopt);
    if (source.fields.empty()) return;
    const Partition before = partitions[name];
    if (pick(2) == 0) put_by_index();
    if (pick(4) == 0) clear_rows();
    if (pick(20) == 0) clear_partition();
    const std::vector<FieldLayout> fields = dense_fields(source.fields, static_cast<std::int64_t>(rows.size()));
    const Reservation reservation = reserve(index(), nbytes_of(fields));
    const Index::MoveResult result = index().publish_moved(source, reservation, owner, fields);
    std::int64_t moved = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = partitions.contains(name) ? partitions[name].find(rows[i]) : Partition::iterator{};
      if (!partitions.contains(name) || row == partitions[name].end()) continue;
      for (const std::string& field : source.fields) {
        const auto then = before.at(rows[i]).cells.find(field);
        const auto now = row->second.cells.find(field);
        if (then == before.at(rows[i]).cells.end() || now == row->second.cells.end() || !(then->second == now->second)) continue;
        set_cell(row->second, field, Cell{reservation.block.word, static_cast<std::int64_t>(i)});
        ++moved;
      }
    }
    REQUIRE(result.moved == moved);
    check_retired(result.retired);
  }

  void free_retired() {
    std::shuffle(retired.begin(), retired.end(), random);
    std::vector<BlockRef> some;
    for (std::uint64_t n = pick(retired.size() + 1); n > 0; --n) {
      some.push_back(BlockRef{retired.back()});
      retired.pop_back();
    }
    const std::uint64_t before = retired_bytes();
    const std::uint64_t freed = index().free_retired(some);
    REQUIRE(retired_bytes() == before - freed);
    REQUIRE(index().free_retired(some) == 0);
  }

  std::uint64_t retired_bytes() {
    const tq::IndexStats stats = index().stats();
    return stats.retired_bytes + stats.spill_retired_bytes;
  }

  // Whole blocks get another ref and place; a put, clear or move of rows that comes between the look and the publication wins.
  void spill() {
    std::vector<Index::PlacedBlock> blocks = index().blocks_in_memory();
    for (const Index::PlacedBlock& block : blocks) {
      REQUIRE_FALSE(block.span.spilled());
      REQUIRE(live[block.ref.word] > 0);
      REQUIRE_FALSE(spilled.contains(block.ref.word));
    }
    std::size_t in_memory = 0;
    for (const auto& [block, cells] : live) in_memory += cells > 0 && !spilled.contains(block);
    REQUIRE(blocks.size() == in_memory);
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.resize(std::min<std::size_t>(blocks.size(), 1 + pick(8)));
    if (blocks.empty()) return;
    std::vector<Index::RowStretch> rows;
    for (const auto& of_block : index().rows_naming(blocks)) rows.insert(rows.end(), of_block.begin(), of_block.end());
    std::vector<std::uint64_t> sizes;
    for (const Index::PlacedBlock& block : blocks) sizes.push_back(block.span.nbytes);
    const auto places = index().reserve_spill(sizes, owner);
    switch (pick(6)) {
      case 0: put_by_index(); break;
      case 1: clear_rows(); break;
      case 2: move(); break;
      case 3: clear_partition(); break;
      default: break;
    }
    std::vector<Index::BlockMove> moves;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      REQUIRE(places[i]);
      REQUIRE(places[i]->span.spilled());
      REQUIRE(places[i]->span.nbytes == blocks[i].span.nbytes);
      moves.push_back({blocks[i].ref, *places[i]});
    }
    index().publish_spilled(moves, rows, owner);
    REQUIRE(index().stats().spill_pending_bytes == 0);
    std::map<std::uint64_t, std::uint64_t> renamed;
    for (const Index::BlockMove& move : moves) {
      REQUIRE(move.moved == (live[move.from.word] > 0));
      if (move.moved) renamed[move.from.word] = move.to.block.word;
    }
    rename_blocks(partitions, renamed);
    n_spilled += renamed.size();
  }

  void abandon() {
    const Reservation kept = reserve(index(), 1 + pick(200'000));
    const Reservation given_back = reserve(index(), 1 + pick(200'000));
    index().abandon(given_back, owner);
    index().abandon(given_back, owner);
    REQUIRE(index().stats().pending_bytes == kept.span.nbytes);
    REQUIRE(index().abandon_owner(owner).size() == 1);
  }

  void resolve() {
    const std::string name = some_name();
    Partition none;
    const bool known = partitions.contains(name);
    Partition& rows = known ? partitions[name] : none;
    std::vector<RowIndex> asked = some_rows(rows);
    if (pick(3) == 0) asked.push_back(last_row + 1);
    if (pick(3) == 0 && !asked.empty()) asked.push_back(asked[pick(asked.size())]);
    if (pick(5) == 0) asked.push_back(static_cast<RowIndex>(pick(static_cast<std::uint64_t>(last_row) + 2)));
    std::optional<std::vector<std::string>> fields;
    if (pick(2) == 0) {
      fields = some_fields();
      if (pick(3) == 0) fields->push_back("unknown");
      if (pick(5) == 0) fields->push_back(fields->front());
    }
    const Resolution answer = index().resolve(name, by_index(asked), fields, pick(4) == 0);
    REQUIRE(answer.partition_found == known);
    REQUIRE(answer.indexes == asked);
    std::vector<std::int64_t> gone;
    std::set<std::string> seen;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto row = rows.find(asked[i]);
      if (row == rows.end()) {
        gone.push_back(static_cast<std::int64_t>(i));
        continue;
      }
      for (const auto& [field, cell] : row->second.cells) seen.insert(field);
    }
    REQUIRE(answer.gone == gone);
    REQUIRE(answer.fields == fields.value_or(std::vector<std::string>(seen.begin(), seen.end())));
    for (std::size_t f = 0; f < answer.fields.size(); ++f) {
      for (std::size_t i = 0; i < asked.size(); ++i) {
        const auto row = rows.find(asked[i]);
        Cell expected;
        if (row != rows.end() && row->second.cells.contains(answer.fields[f])) expected = row->second.cells[answer.fields[f]];
        REQUIRE(cell_of(answer, f, static_cast<std::int64_t>(i)) == expected);
      }
      for (const tq::Piece& piece : answer.piece_lists[answer.field_pieces[f]]) {
        const auto& layout = answer.layouts[f][static_cast<std::size_t>(piece.block)];
        REQUIRE(layout);
        REQUIRE(layout->name == answer.fields[f]);
        REQUIRE(layout->schema == "schema of " + answer.fields[f]);
      }
    }
    for (const auto& pieces : answer.piece_lists) {
      for (std::size_t i = 1; i < pieces.size(); ++i) {
        const tq::Piece& last = pieces[i - 1];
        const bool follows = last.block == pieces[i].block && last.first + last.count == pieces[i].first &&
                             last.block_row + last.count == pieces[i].block_row;
        REQUIRE_FALSE(follows);  // it would be one piece
      }
    }
  }

  std::mt19937_64 random;
  RowIndex last_row = -1;
  std::uint64_t next_key = 0;
};

// Returns how many clears were cut short between two batches.
int run_model(std::uint64_t index_bytes, unsigned seed, int steps) {
  Model model(index_bytes, seed);
  for (int i = 0; i < steps; ++i) {
    INFO("seed " << seed << ", step " << i);
    model.step();
    if (i % 50 == 0) model.check_everything();
  }
  model.check_everything();
  REQUIRE(model.n_spilled > 0);
  return model.clears_cut_short;
}

}  // namespace

TEST_CASE("random puts, overwrites, clears, moves and resolves agree with a model") {
  for (unsigned seed = 1; seed <= 4; ++seed) run_model(32u << 20, seed, 1000);
}

TEST_CASE("the same in an index so small that clears take several batches") {
  int cut_short = 0;
  for (unsigned seed = 11; seed <= 14; ++seed) cut_short += run_model(2u << 20, seed, 1000);
  CHECK(cut_short > 0);
}
