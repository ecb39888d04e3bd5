// Several processes that work as one engine: mpirun -n 4 program. Long prompts are read by all of them at once, and
// each keeps a part of the KV cache; answers are those of one process, bit by bit.
//
// Rank 0 runs the program, with Ranks in EngineOptions; the others follow():
//
//   auto ranks = godwit::Ranks::join();
//   if (ranks && *ranks && (*ranks)->rank() > 0) return (*ranks)->follow() ? 0 : 1;
//   auto engine = godwit::Engine::open({.ranks = ranks ? *ranks : nullptr});
//
// All ranks need the same program and the model under the same path. Thread-safety: as Engine's.
#pragma once

#include <memory>
#include <string>

#include <godwit/status.h>

namespace godwit {

class Ranks {
 public:
  // The job that Open MPI's mpirun started this process in; null without mpirun, and where it started only this one.
  static Result<std::shared_ptr<Ranks>> join();
  // On rank 0: the others return from follow(). Nobody waits for a job that has failed; see abort().
  ~Ranks();

  int rank() const;
  int size() const;

  // On every rank but 0: does what the engines of rank 0 ask for, until rank 0 has ended.
  Status follow();
  // Whether messages still come through; if not, why.
  Status status() const;
  // Ends the job on all ranks, this one included, with that exit code: for when something has gone wrong for good. On
  // other ranks than 0 it leaves rank 0 a moment to say so itself; where mpirun was given --enable-recovery, these only
  // see to it that they can end, and rank 0 goes on if it can (a Service does).
  void abort(int code = 1);

  struct Impl;
  explicit Ranks(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit
