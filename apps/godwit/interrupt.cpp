#include "interrupt.h"

#include <atomic>
#include <csignal>
#include <thread>

namespace godwit::cli {
namespace {

// A signal handler may do little more than set a flag; a thread turns the flag into the stop request.
volatile std::sig_atomic_t interrupts = 0, patient = 0;
void on_interrupt(int) {
  interrupts = interrupts + 1;
  if (interrupts > 1 && patient == 0) {
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
  patient = second == kIsIgnored ? 1 : 0;
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
