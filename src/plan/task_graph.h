// A discrete-event simulation of tasks that wait for one another and for the resource they run on.
//
// A resource (a rank's compute, a link in one direction) runs one task at a time. A task becomes ready when all it
// depends on have ended and its resource's release time has come; of the ready tasks of a resource, the one that was
// added first goes first. Nothing is interrupted. Not thread-safe.
#pragma once

#include <cstddef>
#include <vector>

namespace godwit::plan {

class TaskGraph {
 public:
  using Task = int;
  static constexpr Task kNone = -1;  // depends on nothing; allowed among dependencies

  // Nothing runs on it before `release_s`.
  int add_resource(double release_s = 0);
  // REQUIRES: the dependencies were added before. `resource` < 0: the task needs none, it only joins others.
  Task add(int resource, double seconds, const std::vector<Task>& after);

  // Runs all events. Once.
  void run();

  double start(Task task) const { return tasks_[static_cast<size_t>(task)].start; }
  double end(Task task) const { return tasks_[static_cast<size_t>(task)].end; }
  double busy(int resource) const { return resources_[static_cast<size_t>(resource)].busy; }
  size_t size() const { return tasks_.size(); }

 private:
  struct Node {
    int resource = -1;
    double seconds = 0, start = 0, end = 0;
    int waits_for = 0;
    std::vector<Task> followers;
  };
  struct Resource {
    double free_at = 0, busy = 0;
    bool taken = false;
    std::vector<Task> ready;  // a heap, first added first
  };
  std::vector<Node> tasks_;
  std::vector<Resource> resources_;
};

}  // namespace godwit::plan
