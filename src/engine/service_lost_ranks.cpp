// What a service does when its engine has lost ranks. Their KV memory is gone, and no message comes through any more.
// But all tokens are known here, so where the job outlives its ranks, this process computes them anew and goes on. The
// bits of one process are those of many, but where a policy has dropped entries or sums are not exact; so answers go on
// as if nothing had been.
#include "engine/service_ranks.h"

namespace godwit {

bool Service::Impl::ranks_are_lost() const {
  return over_ranks && !lost && !over_ranks->status();
}

void Service::Impl::lose_ranks() {
  const Status why = over_ranks->status();
  if (!engine->team->outlives_ranks()) return lose(why);
  if (const Status alone = go_on_alone(why.error().message); !alone)
    return lose(errorf(alone.error().code, "{}; and rank 0 cannot go on alone: {}", why.error().message,
                       alone.error().message));
  if (options.on_alone) options.on_alone(why.error().message);
}

Status Service::Impl::go_on_alone(const std::string& why) {
  {
    std::lock_guard lock(engine->mutex);
    for (const auto& [id, work] : works) {
      if (work->sequence) engine->team->drop(work->team_sequence);
      work->sequence.reset();
      work->dropped.reset();
      work->team = nullptr;
    }
    over_ranks.reset();
    states.reset();
    prefixes.reset();
    const Status alone = engine->go_alone();
    make_caches();
    GODWIT_TRY(alone);
    scheduler = Scheduler(sched_options());
  }
  {
    std::lock_guard lock(mutex);
    stats.ranks = 1;
    stats.lost_ranks = why;
    stats.kv_bytes_in_use = stats.prefix_bytes = 0;
    stats.prefix_blocks = 0;
  }
  spread = false;
  std::vector<uint64_t> ids;
  for (const auto& [id, work] : works) {
    schedule(*work);
    ids.push_back(id);
  }
  for (uint64_t id : ids) end_if_in_vain(id);
  return {};
}

// A request that insists on ranks that are no more.
void Service::Impl::end_if_in_vain(uint64_t id) {
  const RankDegrees& asked = works.at(id)->request.ranks;
  if (!stats.lost_ranks.empty() && std::max(asked.prefill, asked.decode) > 1)
    end(id, FinishReason::kStop, stats.lost_ranks);
}

void Service::Impl::lose(const Status& why) {
  lost = true;
  {
    std::lock_guard lock(mutex);
    status = why;  // submit() refuses from now on
  }
  take_submitted();
  while (!works.empty()) end(works.begin()->first, FinishReason::kStop, why.error().message);
  if (options.on_lost) options.on_lost();
}

}  // namespace godwit
