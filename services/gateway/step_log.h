// The log of a step, over its attempts: what became of it, and what its process wrote.
#pragma once

#include <cstdint>
#include <string>

#include "quench/gateway/v1/workflows.pb.h"

namespace quench::gateway {

// Limits of a step's log; the oldest lines go first.
inline constexpr int kMostLogLines = 100;
inline constexpr int kMostLogBytes = 8 << 10;
inline constexpr size_t kLongestLogLine = 1024;

// Adds a line of the present attempt; one that is too long is cut.
void AddLogLine(const std::string& text, int64_t now_us, v1::Step* step);

// Adds why the step waits, in place of the line before if that is another such one: who asks again and again does not
// fill the log.
void AddWaitLine(const std::string& why, int64_t now_us, v1::Step* step);

// Adds what is new in `progress` beside the step's own: another stage, lines of its process after the first `seen` ones
// of this attempt, and says how many of these were lost. Returns the number of lines seen now. Fewer lines than `seen`
// are those of another process, which a service starts when the first has had too little memory.
int64_t AddLogOf(const step::v1::Progress& progress, int64_t seen, int64_t now_us, v1::Step* step);

// "done in 1.25 s of CPU time, at most 312 MiB", "taken from the cache".
std::string LogTextOf(const step::v1::Execution& execution);

}  // namespace quench::gateway
