// What an Engine owns, and the step that its sessions share.
#pragma once

#include <mutex>

#include "attn/plan.h"
#include "backend/timed_backend.h"
#include "dist/shared_memory.h"
#include "engine/constraints.h"
#include "engine/memory_plan.h"
#include "engine/sampling_defaults.h"
#include "engine/vocabulary.h"
#include "kv/pool.h"
#include "kv/retention.h"
#include "kv/sequence.h"
#include "model/decoder.h"
#include <godwit/engine.h>
#include <godwit/ranks.h>

namespace godwit {

class Team;

struct Engine::Impl {
  EngineOptions options;
  std::string label;
  uint64_t weight_bytes = 0;
  uint32_t weight_sample = 0;  // over ranks: tells other weights of the same shape
  int rank_count = 1;
  MemoryPlan memory;
  std::optional<Vocabulary> vocabulary;
  std::optional<Constraints> constraints;
  SamplingDefaults sampling;

  // Back-end, its times, pool, workspace and planners belong to whoever holds the mutex.
  std::mutex mutex;
  OperationSeconds seconds;  // stays 0 without options.profile
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::optional<dist::SharedMemory> kv_memory;  // the pool's, where other ranks may read and write it
  std::unique_ptr<KvPool> pool;
  std::optional<Workspace> workspace;
  std::unique_ptr<AttentionPlanner> prefill_planner, decode_planner, repair_planner;
  std::shared_ptr<const KvRetentionRules> retention;  // null: every entry stays

  std::unique_ptr<Team> team;  // null: this process alone

  Impl();
  ~Impl();
  Status load(const ModelSource& source);
  // The part of rank 0's engine that another rank has.
  static Result<std::unique_ptr<Impl>> open_follower(std::string_view options, Ranks::Impl& ranks, uint32_t id);
  // The most tokens of a prompt that run at once.
  int32_t step_tokens() const;
  // After ranks were lost: this process goes on without any, with an empty KV memory that nobody else has mapped.
  // REQUIRES: nothing of the caller's is in the old one any more. Fails where it is of others, and nothing has changed.
  Status go_alone();

 private:
  friend Result<Engine> open_engine(const EngineOptions& options, std::unique_ptr<Backend> backend);
  Status load_model();
  Status create_pool(std::span<const KvFormat> formats, size_t spare_pages);
  Status gather_team();  // on rank 0
};

}  // namespace godwit
