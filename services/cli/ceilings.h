// Ceilings of the roofline, as --ceilings takes them.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <span>
#include <string>

#include "common/base/context.h"
#include "services/analyser/analyser.h"

namespace quench::cli {

// One short measurement on all cores at once.
struct CeilingRound {
  double rate = 0;  // what was done in a second
  double share =
      0;  // CPU time of the thread that was given the least of it, over its time on the wall
};

// The result of several rounds on the machine. Other programs only make rounds slower, so that the fastest counts.
struct MeasuredCeiling {
  double rate = 0;
  double share = 0;      // of the fastest round
  bool settled = false;  // another round would hardly be faster
  bool quiet() const;    // the fastest round had the cores to itself
};
MeasuredCeiling CeilingOf(std::span<const CeilingRound> rounds);

// `text` is "host" (measured on all cores of this machine, then kept in the user's cache), a target, or
// GFLOPS,GBYTES. INVALID_ARGUMENT and UNIMPLEMENTED say what would be right.
absl::StatusOr<analyser::Ceilings> CeilingsOf(const std::string& text, const StepContext& context);

// The most that a machine has been seen to do.
struct MachineCeilings {
  double gflops = 0, gbytes = 0;
  double share = 0;  // of a core, in the round that others disturbed most, of the two that count
};
using MeasureMachine = std::function<absl::StatusOr<MachineCeilings>(const StepContext& context)>;
absl::StatusOr<MachineCeilings> MeasureThisMachine(const StepContext& context);

enum class HostUse {
  kKept,  // measured only where nothing is kept, or what was measured while other programs took the cores
  kAfresh,  // measured, in place of what was kept
  kRaised,  // measured because something has done more; the higher of each is kept
};
// The ceilings of this machine. Measured while other programs took the cores, they are the least that it can
// do: a warning on stderr says so.
absl::StatusOr<analyser::Ceilings> HostCeilings(HostUse use, const StepContext& context,
                                                const MeasureMachine& measure = MeasureThisMachine);

}  // namespace quench::cli
