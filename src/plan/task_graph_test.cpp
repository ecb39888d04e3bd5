#include "plan/task_graph.h"

#include <gtest/gtest.h>

namespace godwit::plan {
namespace {

TEST(TaskGraph, TasksOfOneResourceTakeTurnsAndOthersOverlap) {
  TaskGraph graph;
  const int cpu = graph.add_resource(), wire = graph.add_resource();
  const auto a = graph.add(cpu, 2, {}), b = graph.add(cpu, 3, {}), c = graph.add(wire, 4, {a});
  const auto join = graph.add(-1, 0, {b, c});
  const auto d = graph.add(cpu, 1, {join, TaskGraph::kNone});
  graph.run();
  EXPECT_EQ(graph.start(b), 2);
  EXPECT_EQ(graph.start(c), 2);
  EXPECT_EQ(graph.end(c), 6);
  EXPECT_EQ(graph.start(d), 6);  // the resource was free from 5 on
  EXPECT_EQ(graph.busy(cpu), 6);
  EXPECT_EQ(graph.busy(wire), 4);
}

TEST(TaskGraph, OfThoseThatWaitTheFirstAddedGoesFirst) {
  TaskGraph graph;
  const int cpu = graph.add_resource(), other = graph.add_resource();
  const auto late = graph.add(other, 1, {});
  const auto long_one = graph.add(cpu, 5, {});
  const auto first = graph.add(cpu, 1, {late});  // ready at 1, long before the resource
  const auto second = graph.add(cpu, 1, {});     // ready at 0
  graph.run();
  EXPECT_EQ(graph.start(first), graph.end(long_one));
  EXPECT_EQ(graph.start(second), graph.end(first));
}

TEST(TaskGraph, AResourceIsNotUsedBeforeItsRelease) {
  TaskGraph graph;
  const int cpu = graph.add_resource(7);
  const auto a = graph.add(cpu, 2, {}), b = graph.add(cpu, 2, {});
  graph.run();
  EXPECT_EQ(graph.start(a), 7);
  EXPECT_EQ(graph.end(b), 11);
  EXPECT_EQ(graph.busy(cpu), 4);
}

}  // namespace
}  // namespace godwit::plan
