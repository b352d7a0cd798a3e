// Regions of a mixed build that cost the layers around them more than their type gains.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "services/cli/precision_choice.h"

namespace quench::cli {

// For each layer those that read what it gives, or give what it reads, through other operators.
std::vector<std::set<size_t>> Neighbours(const Graph& module,
                                         std::span<const PrecisionLayer> layers);

// Microseconds of each layer in a build. A kernel that is named after none, such as a cast, counts for the one
// that ran before it.
std::vector<double> LayerTimes(std::span<const PrecisionLayer> layers,
                               std::span<const TimedKernel> kernels);

// `mixed`, in which regions have the types of `base` again that do not gain. A region is neighbours of one type;
// what it gains over its time in `base` must be more than what the layers around it lose that have their types of
// `base`: casts make them lose, and layouts that suit one type only.
Assignment Refined(Assignment mixed, const Assignment& base,
                   std::span<const std::set<size_t>> neighbours, std::span<const double> base_times,
                   std::span<const double> mixed_times);

}  // namespace quench::cli
