// Ranks that are threads of one process: for tests, with faults to order.
#pragma once

#include <functional>
#include <vector>

#include "dist/link.h"

namespace godwit::dist {

class LocalNetwork;  // shared by the links; lives as long as the last of them

struct LocalFaults {
  std::function<void(int from, int to, std::span<std::byte> message)> tamper = {};  // sees every message on its way
  std::function<void(size_t expected)> polled = {};  // sees every poll(), and how many messages that rank still expects
  bool outlives_ranks = false;                       // what the links say of the job
  bool leaves_lying = false;  // a message is read where it lies when it is taken, as a network may, and not when sent
};

std::vector<std::unique_ptr<Link>> make_local_links(int ranks, LocalFaults faults = {});

}  // namespace godwit::dist
