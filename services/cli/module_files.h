// IR modules as files: how commands read and write them.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "common/ir/text.h"
#include "common/ir/wire/module_file.h"
#include "services/cli/options.h"

namespace quench::cli {

// A module of any form. Types that a text leaves out are inferred.
absl::StatusOr<Graph> LoadModuleFile(const std::string& path);

// The text form for the screen, whose weights are in the cache of the local user and which a comment says: it can be
// read again while they lie there.
absl::StatusOr<std::string> ModuleText(const Graph& graph, const PrintOptions& options = {});

// --external-weights, beside `outputs`: options of which one must be given.
void AddWeightsFlag(const Options& options, bool& external_weights,
                    const std::vector<std::string>& outputs = {"--output"});
// The reason why --external-weights makes no sense for this output; "" if it does.
std::string WeightsProblem(const std::string& output, bool external_weights);

// ALREADY_EXISTS when one of the files that WriteModule would write is there.
absl::Status RefuseExisting(const std::string& output, bool external_weights);
// Writes the module: text for .txt, binary otherwise, with its weights in the file, or in one beside it.
absl::Status WriteModule(const Graph& graph, const std::string& path, bool external_weights);

}  // namespace quench::cli
