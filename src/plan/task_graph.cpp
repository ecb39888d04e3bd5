#include "plan/task_graph.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/check.h"

namespace godwit::plan {

int TaskGraph::add_resource(double release_s) {
  Resource resource;
  resource.free_at = release_s;
  resources_.push_back(std::move(resource));
  return static_cast<int>(resources_.size()) - 1;
}

TaskGraph::Task TaskGraph::add(int resource, double seconds, const std::vector<Task>& after) {
  const auto id = static_cast<Task>(tasks_.size());
  Node node;
  node.resource = resource;
  node.seconds = seconds;
  for (Task task : after) {
    if (task == kNone) continue;
    GODWIT_CHECK(task < id);
    tasks_[static_cast<size_t>(task)].followers.push_back(id);
    ++node.waits_for;
  }
  tasks_.push_back(std::move(node));
  return id;
}

void TaskGraph::run() {
  // An event is the end of a task. Of equal times the task that was added first comes first: runs are repeatable.
  using Event = std::pair<double, Task>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  size_t ended = 0;

  auto begin = [&](Task task, double now) {
    Node& node = tasks_[static_cast<size_t>(task)];
    node.start = now;
    node.end = now + node.seconds;
    if (node.resource >= 0) {
      Resource& resource = resources_[static_cast<size_t>(node.resource)];
      node.start = std::max(now, resource.free_at);  // later than now only before the release
      node.end = node.start + node.seconds;
      resource.taken = true;
      resource.free_at = node.end;
      resource.busy += node.seconds;
    }
    events.emplace(node.end, task);
  };
  auto make_ready = [&](Task task, double now) {
    const int on = tasks_[static_cast<size_t>(task)].resource;
    if (on < 0) return begin(task, now);
    Resource& resource = resources_[static_cast<size_t>(on)];
    if (!resource.taken) return begin(task, now);
    resource.ready.push_back(task);
    std::push_heap(resource.ready.begin(), resource.ready.end(), std::greater<>());
  };

  for (size_t i = 0; i < tasks_.size(); ++i)
    if (tasks_[i].waits_for == 0) make_ready(static_cast<Task>(i), 0);
  while (!events.empty()) {
    const auto [now, task] = events.top();
    events.pop();
    ++ended;
    const Node& node = tasks_[static_cast<size_t>(task)];
    for (Task follower : node.followers)
      if (--tasks_[static_cast<size_t>(follower)].waits_for == 0) {
        // Followers on the resource that this task frees queue up behind the others that wait for it.
        make_ready(follower, now);
      }
    if (node.resource < 0) continue;
    Resource& resource = resources_[static_cast<size_t>(node.resource)];
    resource.taken = false;
    if (resource.ready.empty()) continue;
    std::pop_heap(resource.ready.begin(), resource.ready.end(), std::greater<>());
    const Task next = resource.ready.back();
    resource.ready.pop_back();
    begin(next, now);
  }
  GODWIT_CHECK(ended == tasks_.size());
}

}  // namespace godwit::plan
