// Keys of Graph::metadata that one part of the compiler writes and another reads.
#pragma once

namespace quench {

// `state.<input>` names the output that is that input of the next run, `state_initial.<input>` the
// number that fills it for the first one; without it that is 0.
inline constexpr char kStateKey[] = "state.";
inline constexpr char kStateInitialKey[] = "state_initial.";

// `unfrozen.<input>`: the input is a parameter of the source model that was not frozen.
inline constexpr char kUnfrozenKey[] = "unfrozen.";

// Results of the quantizer: "true", or absent.
inline constexpr char kCalibratedKey[] = "is_calibrated";
inline constexpr char kSplitTensorsKey[] = "is_split_tensors";

}  // namespace quench
