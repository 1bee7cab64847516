#include "core/memory/counters.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "memory/support.hpp"

namespace tq_test::counters_test {

using namespace std::chrono_literals;
using tq::Counter;
using tq::Latency;
using tq::LatencyClasses;
using tq::MethodFigure;

namespace {

std::array<std::uint64_t, tq::layout::method_figure_count> one_call(std::uint64_t rows) {
  std::array<std::uint64_t, tq::layout::method_figure_count> figures{};
  figures[static_cast<std::size_t>(MethodFigure::calls)] = 1;
  figures[static_cast<std::size_t>(MethodFigure::rows)] = rows;
  return figures;
}

std::uint64_t figure(const tq::MethodTotal& method, MethodFigure which) {
  return method.figures[static_cast<std::size_t>(which)];
}

}  // namespace

TEST_CASE("classes of latencies follow one another, half as wide as where they begin, from 512 ns to over a minute") {
  CHECK(LatencyClasses::class_of(0) == 0);
  CHECK(LatencyClasses::class_of(511) == 0);
  CHECK(LatencyClasses::class_of(512) == 1);
  for (unsigned index = 0; index + 1 < LatencyClasses::count; ++index) {
    const std::uint64_t end = LatencyClasses::end_ns(index);
    CHECK(LatencyClasses::class_of(end - 1) == index);
    CHECK(LatencyClasses::class_of(end) == index + 1);
    if (index > 2) CHECK(static_cast<double>(end) <= 1.5 * static_cast<double>(LatencyClasses::end_ns(index - 1)));
  }
  CHECK(LatencyClasses::end_ns(LatencyClasses::count - 2) > 60'000'000'000);
  CHECK(LatencyClasses::class_of(~std::uint64_t{0}) == LatencyClasses::count - 1);
}

TEST_CASE("what many processes and threads add is the sum, and what the killed added stays") {
  Session session;
  const auto count = [&] {
    tq::Counters& counters = session.control->counters();
    for (int i = 0; i < 1000; ++i) {
      counters.add(Counter::put_rows, 3);
      counters.took(Latency::get, 10us);
    }
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(start_child([&] {
      session.control->counters().after_fork_in_child();
      count();
      return ::kill(::getpid(), SIGKILL);
    }));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(count);
  for (auto& thread : threads) thread.join();
  for (const pid_t child : children) CHECK(finish(child) == -SIGKILL);
  const tq::Counters& counters = session.control->counters();
  CHECK(counters.total(Counter::put_rows) == 7 * 3000);
  const tq::LatencyTotal gets = counters.total(Latency::get);
  CHECK(gets.count() == 7000);
  CHECK(gets.counts[LatencyClasses::class_of(10'000)] == 7000);
  CHECK(gets.sum_ns == 70'000'000);
  CHECK(counters.total(Latency::put).count() == 0);
}

TEST_CASE("a time that went backwards counts as none") {
  Session session;
  session.control->counters().took(Latency::put, -5ns);
  CHECK(session.control->counters().total(Latency::put).counts[0] == 1);
  CHECK(session.control->counters().total(Latency::put).sum_ns == 0);
}

TEST_CASE("methods are counted by name, from all processes") {
  Session session;
  tq::Counters& counters = session.control->counters();
  const auto count = [&] {
    for (int i = 0; i < 100; ++i) {
      counters.add_method("Actor.update", one_call(8));
      counters.add_method("Critic.values", one_call(2));
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) children.push_back(start_child(count));
  std::thread thread([&] { count(); });
  thread.join();
  for (const pid_t child : children) CHECK(finish(child) == 0);
  const std::vector<tq::MethodTotal> methods = counters.methods();
  REQUIRE(methods.size() == 2);
  CHECK(methods[0].name == "Actor.update");
  CHECK(figure(methods[0], MethodFigure::calls) == 400);
  CHECK(figure(methods[0], MethodFigure::rows) == 3200);
  CHECK(methods[1].name == "Critic.values");
  CHECK(figure(methods[1], MethodFigure::rows) == 800);
}

TEST_CASE("long names are cut at a character, and names beyond the table count together") {
  Session session;
  tq::Counters& counters = session.control->counters();
  const std::string umlaut = "\xc3\xa4";
  counters.add_method(std::string(119, 'x') + umlaut + "tail", one_call(1));
  REQUIRE(counters.methods().size() == 1);
  CHECK(counters.methods()[0].name == std::string(119, 'x'));
  for (int i = 0; i < 300; ++i) counters.add_method("method " + std::to_string(i), one_call(1));
  const std::vector<tq::MethodTotal> methods = counters.methods();
  CHECK(methods.size() == tq::layout::method_count);
  std::uint64_t calls = 0;
  std::uint64_t other = 0;
  for (const tq::MethodTotal& method : methods) {
    calls += figure(method, MethodFigure::calls);
    if (method.name == "(other)") other = figure(method, MethodFigure::calls);
  }
  CHECK(calls == 301);
  CHECK(other == 301 - (tq::layout::method_count - 1));
}

TEST_CASE("an entry whose taker was killed before it wrote the name is passed over") {
  Session session;
  tq::Counters& counters = session.control->counters();
  counters.add_method("before", one_call(1));
  // What such a process leaves: taken (1), never named.
  const tq::SharedMapping mapping(session.control_fd.get(), 0, sizeof(tq::layout::ControlLayout), tq::Access::read_write, "");
  auto* control = reinterpret_cast<tq::layout::ControlLayout*>(mapping.data());
  auto& entry = control->methods[tq::layout::fnv1a("victim") % (tq::layout::method_count - 1)];
  REQUIRE(entry.state.load() == 0);
  entry.state.store(1);
  counters.add_method("victim", one_call(1));
  counters.add_method("victim", one_call(1));
  REQUIRE(counters.methods().size() == 2);
  CHECK(figure(counters.methods()[1], MethodFigure::calls) == 2);
}

}  // namespace tq_test::counters_test
