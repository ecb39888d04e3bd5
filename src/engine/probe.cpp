#include "engine/probe.h"

#include "engine/session_impl.h"

namespace godwit {

const Model& SessionProbe::model(const Session& session) {
  return *session.impl_->engine->model;
}

const KvSequence& SessionProbe::cache(const Session& session) {
  return *session.impl_->sequence;
}

void SessionProbe::watch(Session& session, AttentionObserver* observer) {
  GODWIT_CHECK(session.impl_->retention == nullptr);
  session.impl_->watcher = observer;
}

}  // namespace godwit
