// How much of a prompt's step each rank computes: as much as it was quick in the steps before.
//
// Ranks tell each other how long they were busy, and each comes to the same numbers from them: all is done in integers.
// Busy is all time but waiting for messages, also what other processes took of the core. Who has few rows and is still
// busy as long as the others gets fewer yet, until all are busy equally long. Pure functions but for gather_busy().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "dist/transport.h"

namespace godwit::dist {

// By rank; the largest is kWholeShare. Empty: all are alike.
using Shares = std::vector<int32_t>;
inline constexpr int32_t kWholeShare = 4096;
inline constexpr int32_t kLeastShare = kWholeShare / 8;
// A step in which nobody computes as many rows says nothing about speeds.
inline constexpr int32_t kTellingRows = 32;

// Everyone's nanoseconds to everyone, by rank; a barrier, too.
Status gather_busy(Transport& transport, int64_t mine_ns, std::vector<int64_t>& all_ns);

// Speeds after a step, from those before it and from each rank's rows and time in it. A rank without rows keeps its
// own, against all others together.
Shares next_speeds(const Shares& before, std::span<const int32_t> rows, std::span<const int64_t> busy_ns);

// How rows are dealt out to ranks of such speeds, after they were dealt out by `before`: all alike until speeds differ
// by more than chance makes of equal ones, and again when they hardly differ any more.
Shares shares_for(const Shares& speeds, const Shares& before);

}  // namespace godwit::dist
