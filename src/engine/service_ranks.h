// A service whose engine has several ranks: its KV memory, as the scheduler sees it, and its steps.
//
// A request's sequence lies on all ranks, and every operation on it is told to all. Prompts stay for those to come as
// whole sequences, not as blocks: a request that begins like one, running or over, goes on with a fork of it that is
// cut off where they part, in whole pages. So pages stay on the rank where they lie. What goes when memory is wanted:
// what was used longest ago. Sealed pages cannot be opened again: where the format seals, a prompt is put aside when it
// has been read, and only whoever begins with all of it can go on from there.
//
// Thread-safety: the service's thread, with the engine's mutex held.
#pragma once

#include "engine/service_impl.h"
#include "engine/team.h"

namespace godwit {

struct Service::Impl::OverRanks final : SchedMemory {
  explicit OverRanks(Impl& service) : service_(service), team_(*service.engine->team) {}
  ~OverRanks() override;

  size_t cached(uint64_t id) const override;
  bool fits(uint64_t id, size_t tokens) const override;
  size_t begin(uint64_t id) override;
  bool reserve(uint64_t id, size_t tokens) override;
  void release(uint64_t id) override;

  // The first tokens of the request's prompt are computed.
  void remember(const Work& work, size_t tokens);
  void forward(Phase phase, std::vector<Rows> list, std::vector<Said>& said);
  Status status() const { return team_.status(); }
  size_t kept_blocks() const;

 private:
  // The beginning of a prompt that is computed.
  struct Beginning {
    std::string space;
    std::shared_ptr<const std::vector<int32_t>> prompt;
    size_t tokens = 0;  // whole pages
    uint64_t id = 0;    // of its sequence
    std::unique_ptr<KvSequence> sequence;
    uint64_t used = 0;
  };
  struct Found {
    size_t tokens = 0;
    uint64_t id = 0;
    const KvSequence* sequence = nullptr;
    Beginning* kept = nullptr;
  };

  SequenceTerms terms(const Work& work) const;
  size_t whole_pages(size_t tokens) const;
  Found find(const Work& work) const;
  bool begin_from(Work& work, const Found& found);
  void keep(Beginning beginning);
  bool forget_oldest();
  void make_way(const Team::Part& part);
  void see_use(Work& work, int32_t end);

  Impl& service_;
  Team& team_;
  std::map<uint64_t, size_t> read_;  // of running requests: tokens of the prompt that are computed
  std::vector<std::unique_ptr<Beginning>> kept_;
  uint64_t uses_ = 0;
};

}  // namespace godwit
