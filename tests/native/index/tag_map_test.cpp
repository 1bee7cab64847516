#include "core/index/tag_map.hpp"

#include "index/support.hpp"

using namespace tq_test;
using tq::merge_tag_maps;

TEST_CASE("tags merge by name, the newer value wins, names stay sorted") {
  const std::string old = tag_map({{"a", "1"}, {"c", "3"}});
  CHECK(merge_tag_maps(old, tag_map({{"b", "2"}, {"c", "4"}})) == tag_map({{"a", "1"}, {"b", "2"}, {"c", "4"}}));
  CHECK(merge_tag_maps(old, "") == old);
  CHECK(merge_tag_maps("", old) == old);
  CHECK(merge_tag_maps("", "") == "");
  CHECK(merge_tag_maps(old, tag_map({})) == old);
  CHECK(merge_tag_maps("", tag_map({})) == "");
}

TEST_CASE("names and values of any bytes, also none") {
  const std::string map = tag_map({{"", ""}, {std::string("n\0l", 3), std::string("\xff\0", 2)}});
  CHECK(merge_tag_maps(map, tag_map({{"", "x"}})) == tag_map({{"", "x"}, {std::string("n\0l", 3), std::string("\xff\0", 2)}}));
}

TEST_CASE("a malformed map is refused, wherever it is cut or stretched") {
  const std::string map = tag_map({{"name", "value"}, {"other", ""}});
  for (std::size_t n = 1; n < map.size(); ++n) {
    CHECK(error_of([&] { merge_tag_maps("", map.substr(0, n)); }).code == tq::ErrorCode::invalid);
  }
  CHECK(error_of([&] { merge_tag_maps("", map + "x"); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { merge_tag_maps("", tag_map({{"b", ""}, {"a", ""}})); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { merge_tag_maps("", tag_map({{"a", ""}, {"a", ""}})); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([&] { merge_tag_maps("", "\xff\xff\xff\xff"); }).code == tq::ErrorCode::invalid);
}
