#include "core/index/tree_walk.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace tq::index {

using namespace lmdb_file;

namespace {

std::uint64_t number_of(std::string_view key) { return read_as<std::uint64_t>(reinterpret_cast<const std::byte*>(key.data())); }

}  // namespace

void damaged(const std::string& what) {
  throw Error(ErrorCode::corrupt, "the index is damaged (" + what + "); end this session and start a new one");
}

TreeWalk::TreeWalk(const std::byte* base, std::uint64_t page_nbytes, std::uint64_t n_pages, std::uint64_t transaction)
    : base_(base), page_nbytes_(page_nbytes), n_pages_(n_pages), transaction_(transaction), seen_(n_pages, false) {
  seen_[0] = seen_[1] = true;
}

void TreeWalk::tree(const Tree& tree, What what) {
  if (tree.flags != (what == What::free ? integer_keys : 0)) damaged("a tree of an unknown kind");
  if (tree.root == no_page) {
    if (tree.depth != 0 || tree.entries != 0) damaged("a tree without pages that has entries");
    return;
  }
  if (tree.depth == 0 || tree.depth > max_depth) damaged("a tree of an impossible depth");
  found_ = {};
  page(tree.root, tree.depth, what);
  if (found_.branch_pages != tree.branch_pages || found_.leaf_pages != tree.leaf_pages ||
      found_.overflow_pages != tree.overflow_pages || found_.entries != tree.entries) {
    damaged("a tree with other pages than it counts");
  }
  // Their trees are walked after that of their names, whose counts they would add to.
  for (const Tree& database : std::exchange(databases_, {})) this->tree(database, What::records);
}

void TreeWalk::check_free_pages() {
  for (const std::uint64_t number : free_) claim(number, 1);
}

void TreeWalk::claim(std::uint64_t number, std::uint64_t count) {
  if (number >= n_pages_ || count > n_pages_ - number) damaged("a page beyond its last");
  for (std::uint64_t i = number; i < number + count; ++i) {
    if (seen_[i]) damaged("a page in two places");
    seen_[i] = true;
  }
}

void TreeWalk::page(std::uint64_t number, unsigned levels, What what) {
  claim(number, 1);
  const std::byte* const begin = at(number);
  const auto header = read_as<PageHeader>(begin);
  if (header.number != number) damaged("a page that says it is another");
  const std::uint16_t expected = levels == 1 ? leaf : branch;
  if (header.flags != expected) damaged("a page of the wrong kind");
  (levels == 1 ? found_.leaf_pages : found_.branch_pages) += 1;
  if (header.lower < sizeof(PageHeader) || header.lower % 2 != 0 || header.upper < header.lower || header.upper > page_nbytes_) {
    damaged("a page with an impossible extent");
  }
  const std::size_t n = (header.lower - sizeof(PageHeader)) / 2;
  if (n == 0 || (levels > 1 && what != What::free && n < 2)) damaged("a page without nodes");
  std::vector<std::pair<std::size_t, std::size_t>> places;  // of this call: pages nest
  places.reserve(n);
  std::string_view before;
  for (std::size_t i = 0; i < n; ++i) {
    const auto offset = read_as<std::uint16_t>(begin + sizeof(PageHeader) + 2 * i);
    if (offset < header.upper || offset % 2 != 0 || offset + sizeof(NodeHeader) > page_nbytes_) damaged("a node outside of its page");
    const auto node = read_as<NodeHeader>(begin + offset);
    const std::size_t left = page_nbytes_ - offset - sizeof(NodeHeader);
    if (node.key_nbytes > left) damaged("a key outside of its page");
    const std::string_view key(reinterpret_cast<const char*>(begin + offset + sizeof(NodeHeader)), node.key_nbytes);
    std::size_t nbytes = sizeof(NodeHeader) + node.key_nbytes;
    if (levels > 1) {
      // The first key of a branch is not used.
      if (i > 0) check_key(key, i > 1 ? before : std::string_view(), what);
      page(std::uint64_t{node.flags} << 32 | std::uint64_t{node.high} << 16 | node.low, levels - 1, what);
    } else {
      check_key(key, before, what);
      nbytes += leaf_data(node, begin + offset + nbytes, left - node.key_nbytes, what);
      found_.entries += 1;
    }
    before = key;
    places.emplace_back(offset, offset + nbytes + (nbytes & 1));
  }
  // Nodes fill the page from `upper` to its end, which is what LMDB moves by when it removes one.
  std::sort(places.begin(), places.end());
  std::size_t next = header.upper;
  for (const auto& [first, end] : places) {
    if (first != next) damaged("nodes that overlap, or leave room between them");
    next = end;
  }
  if (next != page_nbytes_) damaged("nodes beyond the end of their page");
}

void TreeWalk::check_key(std::string_view key, std::string_view before, What what) const {
  if (what == What::free) {
    if (key.size() != sizeof(std::uint64_t)) damaged("an entry of the free list without a number");
    // By transactions. 0 would be read again and again: LMDB takes it for the place before the first entry.
    if (number_of(key) == 0 || number_of(key) > transaction_) damaged("pages freed by a transaction that was not");
    if (!before.empty() && number_of(key) <= number_of(before)) damaged("a free list out of order");
    return;
  }
  if (key.empty() || key <= before) damaged("keys out of order");
}

std::size_t TreeWalk::leaf_data(const NodeHeader& node, const std::byte* data, std::size_t left, What what) {
  const std::uint64_t nbytes = std::uint64_t{node.high} << 16 | node.low;
  const bool is_big = node.flags == big_data;
  if (!is_big && node.flags != (what == What::databases ? sub_database : 0)) damaged("a record of an unknown kind");
  const std::size_t in_page = is_big ? sizeof(std::uint64_t) : static_cast<std::size_t>(nbytes);
  if (in_page > left) damaged("a record outside of its page");
  if (is_big) data = overflow_data(read_as<std::uint64_t>(data), nbytes);
  if (what == What::free) free_list(data, nbytes);
  if (what == What::databases) {
    if (nbytes != sizeof(Tree)) damaged("a database that is none");
    databases_.push_back(read_as<Tree>(data));
  }
  return in_page;
}

const std::byte* TreeWalk::overflow_data(std::uint64_t number, std::uint64_t nbytes) {
  if (number >= n_pages_) damaged("a page beyond its last");
  const auto header = read_as<PageHeader>(at(number));
  const std::uint64_t count = std::uint64_t{header.upper} << 16 | header.lower;
  if (header.flags != overflow || header.number != number) damaged("a large record in a page of the wrong kind");
  if (count != (nbytes + sizeof(PageHeader) - 1) / page_nbytes_ + 1) damaged("a large record of another size than its pages");
  claim(number, count);
  found_.overflow_pages += count;
  return at(number) + sizeof(PageHeader);
}

void TreeWalk::free_list(const std::byte* data, std::uint64_t nbytes) {
  if (nbytes < 8) damaged("a free list without its length");
  const auto count = read_as<std::uint64_t>(data);
  if (count > nbytes / 8 - 1) damaged("a free list longer than its record");
  for (std::uint64_t i = 0; i < count; ++i) {
    free_.push_back(read_as<std::uint64_t>(data + 8 * (i + 1)));
    if (i > 0 && free_[free_.size() - 2] <= free_.back()) damaged("free pages out of order");
  }
}

}  // namespace tq::index
