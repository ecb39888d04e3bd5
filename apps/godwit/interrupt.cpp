#include "interrupt.h"

#include <atomic>
#include <csignal>
#include <thread>

namespace godwit::cli {
namespace {

// A signal handler may do little more than set a flag; a thread turns the flag into the stop request. The handler runs
// on whatever thread the signal finds, so volatile would not do.
std::atomic<int> interrupts = 0;
std::atomic<bool> patient = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
void on_interrupt(int) {
  if (++interrupts > 1 && !patient) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

}  // namespace

struct InterruptScope::Watcher {
  struct sigaction before {};
  std::atomic<bool> done = false;
  std::thread thread;
};

InterruptScope::InterruptScope(Second second) : watcher_(new Watcher) {
  interrupts = 0;
  patient = second == kIsIgnored;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, &watcher_->before);
  watcher_->thread = std::thread([this] {
    while (!watcher_->done) {
      if (interrupts > 0) source_.request_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
}

InterruptScope::~InterruptScope() {
  watcher_->done = true;
  watcher_->thread.join();
  sigaction(SIGINT, &watcher_->before, nullptr);
  delete watcher_;
}

}  // namespace godwit::cli
