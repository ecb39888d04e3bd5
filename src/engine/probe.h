// What a measure may look at inside a session: its model, the entries that its cache holds, what its queries attend to.
#pragma once

#include "kv/attention_observer.h"
#include "kv/sequence.h"
#include "model/decoder.h"
#include <godwit/engine.h>

namespace godwit {

struct SessionProbe {
  static const Model& model(const Session& session);
  // The session's own; every step changes it.
  static const KvSequence& cache(const Session& session);
  // `observer` sees every step until null takes its place. REQUIRES: the engine has no KV policy, which would watch.
  static void watch(Session& session, AttentionObserver* observer);
};

}  // namespace godwit
