// The wires under a Transport: moves messages between the ranks of one job and knows nothing of what is in them.
//
// Messages between two ranks arrive in the order in which they were sent, and receives take them in the order in which
// they were posted. Memory given to send() or receive() belongs to the link until the ticket is done. Thread-safety:
// one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace godwit::dist {

class Link {
 public:
  using Ticket = uint64_t;

  virtual ~Link() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;  // "mpi"

  virtual Ticket send(int to, std::span<const std::byte> message) = 0;
  virtual Ticket receive(int from, std::span<std::byte> memory) = 0;
  // The bytes of the message once it is through, and then never again; an error when it never will be.
  virtual Result<std::optional<size_t>> done(Ticket ticket) = 0;
  // Lets messages go on that need someone to push them.
  virtual void poll() = 0;
  // Something has gone wrong for good. This rank sends and receives no more, memory of what was under way may go, and
  // it will not wait for the others when it ends.
  virtual void give_up() = 0;
  // Likewise, and ends the job on every rank, with that exit code.
  virtual void abort(int code) = 0;
  // Whether the job goes on when one of its processes ends.
  virtual bool outlives_ranks() const = 0;
};

}  // namespace godwit::dist
