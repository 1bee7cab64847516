// Times of the calls that hot paths make. Not run with the tests: index_tests --no-skip -tc="times*"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "index/support.hpp"

using namespace tq_test;

namespace {

template <class Call>
void report(const char* what, int rounds, Call&& call) {
  std::vector<double> times_us;
  for (int i = 0; i < rounds; ++i) {
    const auto before = std::chrono::steady_clock::now();
    call();
    times_us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before).count());
  }
  std::sort(times_us.begin(), times_us.end());
  const std::size_t n = times_us.size();
  std::printf("%-62s median %9.1f us   p10 %9.1f   p90 %9.1f\n", what, times_us[n / 2], times_us[n / 10], times_us[n * 9 / 10]);
}

std::vector<std::string> seven() { return {"attention_mask", "input_ids", "old_log_probs", "position_ids", "prompts", "responses", "uid"}; }

}  // namespace

TEST_CASE("times" * doctest::skip()) {
  Session session(256u << 20);
  Index& index = *session.index;
  const PublishResult w = put(index, "w", fresh(512), seven());
  report("resolve 512 contiguous rows x 7 fields", 2000, [&] { index.resolve("w", by_index(w.indexes), seven()); });
  report("resolve 512 contiguous rows, every field", 2000, [&] { index.resolve("w", by_index(w.indexes), std::nullopt); });
  std::vector<RowIndex> some = w.indexes;
  std::shuffle(some.begin(), some.end(), std::mt19937_64(1));
  some.resize(64);
  report("resolve 64 random rows of 512 x 7 fields (one block)", 2000, [&] { index.resolve("w", by_index(some), seven()); });

  const std::vector<std::string> twenty = numbered("field_", 20);
  PublishRequest request;
  request.partition = "rollout";
  request.rows = fresh(1);
  request.owner = owner;
  request.fields = dense_fields(twenty, 1);
  std::vector<RowIndex> singles;
  for (int i = 0; i < 512; ++i) singles.push_back(put(index, "rollout", fresh(1), twenty).indexes[0]);
  report("reserve (small)", 2000, [&] { index.abandon(reserve(index, 160), owner); });
  std::vector<Reservation> ready;
  for (int i = 0; i < 2000; ++i) ready.push_back(reserve(index, 160));
  std::size_t next = 0;
  report("publish 1 fresh row x 20 fields", 2000, [&] {
    request.reservation = ready[next++];
    index.publish(request);
  });
  std::shuffle(singles.begin(), singles.end(), std::mt19937_64(2));
  report("resolve 512 rows of 512 blocks, shuffled x 20 fields", 200, [&] { index.resolve("rollout", by_index(singles), twenty); });
  singles.resize(64);
  report("resolve 64 rows of 64 blocks x 20 fields", 2000, [&] { index.resolve("rollout", by_index(singles), twenty); });
  next = 0;
  report("reserve + publish 1 keyed row x 20 fields, tags", 2000, [&] {
    request.partition = "keyed";
    request.rows = by_key({"a key of some length, as a uuid has " + std::to_string(next++)});
    request.tags = {tag_map({{"status", "running"}, {"version", "12345678"}})};
    request.reservation = reserve(index, 160);
    index.publish(request);
  });

  const std::vector<std::string> keys = numbered("0123456789abcdef0123456789-", 10'000);
  const std::vector<std::string> tags(keys.size(), tag_map({{"status", "running"}, {"version", "12345678"}}));
  int round = 0;
  report("reserve + publish 10,000 keyed rows x 7 fields, tags", 10,
         [&] { put(index, "k" + std::to_string(round++), by_key(keys), seven(), tags); });
  report("publish 10,000 keyed rows again (by key, 1 field)", 10, [&] { put(index, "k0", by_key(keys), {"reward"}); });
  bool found = false;
  report("find_keys of 10,000", 50, [&] { index.find_keys("k1", keys, &found); });
  report("list of 10,000 keyed rows with tags", 50, [&] { index.list_rows("k1"); });
  report("resolve 10,000 by key x 7 fields", 20, [&] { index.resolve("k1", by_key(keys), seven()); });
  for (int i = 0; i < 10'000; ++i) {
    put(index, "s", by_key({keys[static_cast<std::size_t>(i)]}), {"reward"}, {tags[0]});
  }
  report("list of 10,000 keyed rows put one by one", 50, [&] { index.list_rows("s"); });
  report("find_keys of 10,000 keys put one by one", 50, [&] { index.find_keys("s", keys, &found); });
  report("task snapshot of 10,000 rows put one by one", 50, [&] { index.task_snapshot("s", "train", {"reward"}); });
  report("merge one tag into 10,000 rows", 10,
         [&] { index.merge_tags("k1", index.list_rows("k1").indexes, std::vector<std::string>(10'000, tags[0])); });
  std::printf("index used %.1f MB\n", static_cast<double>(index.stats().index_used_bytes) / 1e6);
  for (const char* name : {"k2", "s"}) {
    report((std::string("clear partition ") + name + " of 10,000").c_str(), 1, [&] { index.clear_partition(name); });
  }
  report("clear 10,000 rows by key", 1, [&] { index.clear_rows("k3", by_key(keys)); });
  report("free retired blocks, all", 1, [&] { index.free_retired(index.retired()); });
  check_whole_index(session.directory.path());
}
