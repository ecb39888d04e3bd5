#include "dist/whereabouts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace godwit::dist {
namespace {

TEST(Whereabouts, WhoHasEndedIsNoticedWhereNumbersMeanTheSame) {
  const Whereabouts own = own_whereabouts();
  EXPECT_TRUE(is_within_reach(own));
  EXPECT_FALSE(has_ended(own));
  Whereabouts child = own;
  child.process = fork();
  ASSERT_GE(child.process, 0);
  if (child.process == 0) {
    pause();
    _exit(0);
  }
  EXPECT_FALSE(has_ended(child));
  kill(child.process, SIGKILL);
  waitpid(child.process, nullptr, 0);
  EXPECT_TRUE(has_ended(child));
  Whereabouts elsewhere = child;
  elsewhere.boot[0] ^= 1;
  EXPECT_FALSE(has_ended(elsewhere));
  elsewhere = child;
  ++elsewhere.process_space;
  EXPECT_FALSE(has_ended(elsewhere));
}

}  // namespace
}  // namespace godwit::dist
