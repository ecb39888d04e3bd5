// What a measure may see and set of an engine's work over ranks.
#pragma once

#include <string>

#include "engine/team.h"
#include <godwit/engine.h>

namespace godwit {

struct RanksProbe {
  // Null where the engine has this process alone.
  static Team* team(const Engine& engine) { return engine.impl().team.get(); }
  // RankOptions::ring from the next step on. REQUIRES: a name that exists.
  static void set_ring(const Engine& engine, std::string ring) {
    std::lock_guard lock(engine.impl().mutex);
    engine.impl().options.rank_options.ring = std::move(ring);
  }
  // Other constants than those that were measured, for what is chosen from now on.
  static void set_costs(const Engine& engine, const dist::RingCosts& costs) {
    std::lock_guard lock(engine.impl().mutex);
    engine.impl().team->set_costs(costs);
  }
};

}  // namespace godwit
