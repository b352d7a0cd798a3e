// Outputs of steps as files.
#pragma once

#include <filesystem>

#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/remote/client.h"

namespace quench::cli {

// Downloads the outputs of all steps that have succeeded into FOLDER/STEP/, those of a compilation or a package into
// FOLDER/MODEL/OPTIONS/TARGET/, where a package's come instead of its compilation's; prints each file's path. Without
// `all`: libraries, reports, pages, exported files, statistics. Files that hold the same bytes stay. NOT_FOUND if there are
// none.
absl::Status DownloadOutputs(const gateway::v1::Workflow& workflow,
                             const std::filesystem::path& folder, bool all, GatewayClient& client,
                             const StepContext& context);

// Whether a path that somebody else has chosen leads below the folder that it is put into.
bool StaysBelow(const std::string& path);

// model.so, model.o or model.a, as the file's first bytes say.
std::string NameOfLibrary(const std::filesystem::path& path);

}  // namespace quench::cli
