// --options FILE: options of a project in a file that commands share with workflows.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "services/cli/options.h"

namespace quench::cli {

// An option as a file gives it.
struct FileOption {
  std::string name;                 // "--max-size"
  std::vector<std::string> values;  // none for a flag
  std::string where;                // "project.txtpb:7: `choices.compile_options.max_size`"
};

// A quench.gateway.v1.CompileBatch without models, with one choice and one target at most, in terms of
// `quench compile`.
struct OptionsFile {
  std::vector<FileOption> options;
  // These have no option: --class-names and --preprocess take files.
  std::vector<std::string> class_names;
  std::string preprocessing;
};

enum class FileReader { kCompile, kQuantize };  // --quantize is --activation-dtype for the latter

// INVALID_ARGUMENT names file, line and field of everything that is wrong, unknown or without an option. Options
// that only `quench compile` has are left out for kQuantize: targets, compile options, calibration.
absl::StatusOr<OptionsFile> ReadOptionsFile(const std::string& path, FileReader reader);

// Declares --options. Options of the command line are used instead of the file's. `path` must live until the
// command has run; `take` is called with the file once it is read.
void AddOptionsFile(const Options& options, FileReader reader, std::string& path,
                    const std::function<void(const OptionsFile&)>& take);

}  // namespace quench::cli
