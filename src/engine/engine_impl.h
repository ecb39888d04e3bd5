// What an Engine owns, and the step that its sessions share.
#pragma once

#include <mutex>

#include "attn/plan.h"
#include "backend/timed_backend.h"
#include "engine/memory_plan.h"
#include "engine/vocabulary.h"
#include "kv/pool.h"
#include "kv/retention.h"
#include "kv/sequence.h"
#include "model/decoder.h"
#include <godwit/engine.h>

namespace godwit {

struct Engine::Impl {
  EngineOptions options;
  std::string label;
  uint64_t weight_bytes = 0;
  MemoryPlan memory;
  std::optional<Vocabulary> vocabulary;

  // Back-end, its times, pool, workspace and planners belong to whoever holds the mutex.
  std::mutex mutex;
  OperationSeconds seconds;  // stays 0 without options.profile
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvPool> pool;
  std::optional<Workspace> workspace;
  std::unique_ptr<AttentionPlanner> prefill_planner, decode_planner, repair_planner;
  std::shared_ptr<const KvRetentionRules> retention;  // null: every entry stays

  Status load(const ModelSource& source);
};

}  // namespace godwit
