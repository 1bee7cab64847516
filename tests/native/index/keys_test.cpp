#include "core/index/keys.hpp"

#include "core/index/impl.hpp"
#include "index/support.hpp"

using namespace tq_test;

namespace tq {
struct IndexTestAccess {
  static Index::Impl& impl(Index& index) { return *index.impl_; }
};
}  // namespace tq

TEST_CASE("the hash is SipHash-1-3") {
  // From an independent implementation (CPython 3.11's hash of bytes, with a zero key).
  const std::uint64_t zero[2] = {};
  CHECK(tq::index::sip_hash(zero, "a") == 4644417185603328019ull);
  CHECK(tq::index::sip_hash(zero, "abc") == 13851880170939887858ull);
  CHECK(tq::index::sip_hash(zero, "12345678") == 3785724242978802311ull);
  CHECK(tq::index::sip_hash(zero, "0123456789abcdef0123456789abcdef-") == 9490378252301509731ull);
  const std::uint64_t other[2] = {1, 0};
  CHECK(tq::index::sip_hash(other, "abc") != tq::index::sip_hash(zero, "abc"));
}

TEST_CASE("keys that differ in their last bytes only stand side by side, in their order") {
  const tq::index::KeyHasher hasher{{1, 2}};
  const auto stem = [&](std::string_view key) { return hasher(key) >> 24; };
  CHECK(hasher("sample-000124") == hasher("sample-000123") + 1);
  CHECK(stem("sample-000999") == stem("sample-000000"));
  CHECK(stem("sample-001000") != stem("sample-000000"));
  CHECK(stem("ab") == stem("xyz"));  // nothing but last bytes
  CHECK(hasher("ab") != hasher("xyz"));
  const tq::index::KeyHasher other{{1, 3}};
  CHECK(other("sample-000123") != hasher("sample-000123"));
}

TEST_CASE("keys with equal hashes stay apart") {
  Session session;
  tq::IndexTestAccess::impl(*session.index).hasher.mask = 3;
  Index& index = *session.index;
  const std::vector<std::string> keys = numbered("key ", 40);
  const PublishResult made = put(index, "p", by_key(keys), {"a"});
  CHECK(made.indexes == range(0, 40));
  bool found = false;
  CHECK(index.find_keys("p", keys, &found) == range(0, 40));
  CHECK(index.find_keys("p", {"key 40", "key 3", "key", "key 3"}, &found) == std::vector<RowIndex>{-1, 3, -1, 3});
  CHECK(put(index, "p", by_key({"key 39", "key 41", "key 0"}), {"a"}).indexes == std::vector<RowIndex>{39, 40, 0});
  CHECK(error_of([&] { put(index, "p", by_key({"x", "y", "z", "x"}), {"a"}); }).names == std::vector<std::string>{"x"});
  CHECK(index.clear_rows("p", by_key({"key 5", "key 6", "key 7", "key 8"})).rows == 4);
  CHECK(index.find_keys("p", {"key 4", "key 5", "key 9"}, &found) == std::vector<RowIndex>{4, -1, 9});
  CHECK(put(index, "p", by_key({"key 5"}), {"a"}).indexes == std::vector<RowIndex>{41});
  check_whole_index(session.directory.path(), false);
  index.clear_rows("p", by_index(range(0, 42)));
  CHECK(index.find_keys("p", keys, &found) == std::vector<RowIndex>(40, -1));
  check_whole_index(session.directory.path(), false);
}

TEST_CASE("keys of any content and length up to the limit") {
  Session session;
  Index& index = *session.index;
  const std::vector<std::string> keys = {std::string("a\0b", 3), std::string("a\0c", 3), "a", std::string(10'000, 'k'),
                                         std::string(10'000, 'k') + "2", std::string(64u << 10, 'm'), "\xff\xfe", " ", "key\n"};
  put(index, "p", by_key(keys), {"x"}, std::vector<std::string>(keys.size(), tag_map({{"t", std::string(5'000, 'v')}})));
  bool found = false;
  CHECK(index.find_keys("p", keys, &found) == range(0, static_cast<std::int64_t>(keys.size())));
  CHECK(index.find_keys("p", {std::string("a\0", 2)}, &found) == std::vector<RowIndex>{-1});
  const tq::RowListing listing = index.list_rows("p");
  for (std::size_t i = 0; i < keys.size(); ++i) CHECK(listing.keys[i] == keys[i]);
  check_whole_index(session.directory.path());
  index.clear_rows("p", by_key(keys));
  CHECK(index.list_rows("p").indexes.empty());
  check_whole_index(session.directory.path());
}

TEST_CASE("empty, repeated and too long keys are refused by name, and nothing changes") {
  Session session;
  Index& index = *session.index;
  CHECK(error_of([&] { put(index, "p", by_key({"a", ""}), {"x"}); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { put(index, "p", fresh(1, {""}), {"x"}); }).code == tq::ErrorCode::invalid);
  const tq::Error repeated = error_of([&] { put(index, "p", by_key({"a", "b", "a", "c", "b"}), {"x"}); });
  CHECK(repeated.code == tq::ErrorCode::invalid);
  CHECK(std::string(repeated.what()).find("duplicate keys") != std::string::npos);
  std::vector<std::string> names = repeated.names;
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"a", "b"});
  CHECK(error_of([&] { put(index, "p", by_key({std::string((64u << 10) + 1, 'k')}), {"x"}); }).code == tq::ErrorCode::invalid);
  CHECK(index.partitions().empty());
  CHECK(index.stats().puts == 0);
  CHECK(index.stats().pending_bytes == 0);
}

TEST_CASE("a key that exists is an error for fresh rows and for an exclusive put") {
  Session session;
  Index& index = *session.index;
  put(index, "p", by_key({"a", "b"}), {"x"});
  CHECK(error_of([&] { put(index, "p", fresh(2, {"c", "b"}), {"x"}); }).names == std::vector<std::string>{"b"});
  PublishRequest request;
  request.partition = "p";
  request.rows = by_key({"a", "d"});
  request.exclusive_keys = true;
  CHECK(error_of([&] { index.publish(request); }).names == std::vector<std::string>{"a"});
  request.rows = by_key({"e", "d"});
  CHECK(index.publish(request).indexes == range(2, 2));
  // The same key in another partition is another row.
  CHECK(put(index, "q", by_key({"a"}), {"x"}).indexes == range(4, 1));
}
