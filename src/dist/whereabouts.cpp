#include "dist/whereabouts.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace godwit::dist {

Whereabouts own_whereabouts() {
  Whereabouts own;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::strncpy(own.boot, boot.c_str(), sizeof(own.boot) - 1);
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) == 0) own.process_space = space.st_ino;
  own.process = getpid();
  return own;
}

bool is_within_reach(const Whereabouts& process) {
  static const Whereabouts own = own_whereabouts();
  return own.boot[0] != '\0' && std::strncmp(own.boot, process.boot, sizeof(own.boot)) == 0 && own.process_space != 0 &&
         own.process_space == process.process_space;
}

bool has_ended(const Whereabouts& process) {
  return process.process > 0 && is_within_reach(process) && kill(process.process, 0) != 0 && errno == ESRCH;
}

}  // namespace godwit::dist
