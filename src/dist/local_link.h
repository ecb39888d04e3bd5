// Ranks that are threads of one process: for tests, with faults to order.
#pragma once

#include <functional>
#include <vector>

#include "dist/link.h"

namespace godwit::dist {

class LocalNetwork;  // shared by the links; lives as long as the last of them

struct LocalFaults {
  std::function<void(int from, int to, std::span<std::byte> message)> tamper;  // sees every message on its way
};

std::vector<std::unique_ptr<Link>> make_local_links(int ranks, LocalFaults faults = {});

}  // namespace godwit::dist
