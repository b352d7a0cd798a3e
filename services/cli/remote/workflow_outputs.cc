#include "services/cli/remote/workflow_outputs.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <set>

#include "common/base/errno_status.h"
#include "common/base/status.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;
namespace fs = std::filesystem;

// A file's name by the output's port; "" for what only other steps read.
std::string FileNameOf(const pb::StepOutput& output) {
  switch (output.port()) {
    case pb::PORT_HEADER:
      return "model.h";
    case pb::PORT_REPORT_JSON:
      return "report.json";
    case pb::PORT_PAGE:
      return "report.html";
    case pb::PORT_FILE:
      return "model.onnx";
    case pb::PORT_EXTERNAL_DATA:
      return output.name().substr(output.name().find('/') + 1);
    case pb::PORT_STATISTICS:
      return "calibration.stats";
    default:
      return "";
  }
}

absl::Status DownloadTo(const fs::path& path, const Digest& digest, GatewayClient& client,
                        const StepContext& context) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return ErrnoStatus(error.value(), "create folder", path.parent_path());
  if (!client.Holds(path, digest, context))
    QUENCH_RETURN_IF_ERROR(client.DownloadFile(digest, path, context));
  fmt::print("{}\n", path.string());
  return absl::OkStatus();
}

absl::Status DownloadLibrary(const fs::path& folder, const Digest& digest, GatewayClient& client,
                             const StepContext& context) {
  for (const char* name : {"model.so", "model.o", "model.a"}) {
    if (!client.Holds(folder / name, digest, context)) continue;
    fmt::print("{}\n", (folder / name).string());
    return absl::OkStatus();
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "create folder", folder);
  const fs::path part = folder / "model.part";
  QUENCH_RETURN_IF_ERROR(client.DownloadFile(digest, part, context));
  const fs::path path = folder / NameOfLibrary(part);
  fs::rename(part, path, error);
  if (error) return ErrnoStatus(error.value(), "replace", path);
  fmt::print("{}\n", path.string());
  return absl::OkStatus();
}

}  // namespace

bool StaysBelow(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return !normal.is_absolute() && !normal.empty() && *normal.begin() != "..";
}

std::string NameOfLibrary(const fs::path& path) {
  std::array<char, 18> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  const std::string_view bytes(head.data(), head.size());
  if (bytes.starts_with("!<arch>")) return "model.a";
  constexpr char kRelocatable = 1;  // ELF's e_type
  const bool elf = bytes.starts_with("\177ELF");
  return elf && head[16] == kRelocatable ? "model.o" : "model.so";
}

absl::Status DownloadOutputs(const pb::Workflow& workflow, const fs::path& folder, bool all,
                             GatewayClient& client, const StepContext& context) {
  std::set<std::string> packaged;  // the compilations that have a package
  for (const pb::Step& step : workflow.steps()) {
    const size_t end = step.name().rfind("/package");
    if (end != std::string::npos && step.state() == pb::STATE_SUCCEEDED)
      packaged.insert(step.name().substr(0, end) + "/compile");
  }
  int files = 0;
  for (const pb::Step& step : workflow.steps()) {
    if (step.state() != pb::STATE_SUCCEEDED || packaged.contains(step.name())) continue;
    if (!StaysBelow(step.name())) {
      return InvalidArgument("the name of step `{}` leads out of the folder of its workflow",
                             step.name());
    }
    const std::string last = step.name().substr(step.name().rfind('/') + 1);
    fs::path place = (folder / step.name()).lexically_normal();
    if ((last == "compile" || last == "package") && last != step.name())
      place = place.parent_path();
    for (const pb::StepOutput& output : step.outputs()) {
      const std::string name = FileNameOf(output);
      absl::Status done;
      if (output.port() == pb::PORT_LIBRARY) {
        done = DownloadLibrary(place, output.digest(), client, context);
      } else if (!name.empty() && StaysBelow(name)) {
        done = DownloadTo(place / name, output.digest(), client, context);
      } else if (all && StaysBelow(output.name())) {
        done = DownloadTo(place / (output.name() + ".binpb"), output.digest(), client, context);
      } else {
        continue;
      }
      QUENCH_RETURN_IF_ERROR(
          Annotate(done, fmt::format("step `{}`: {}", step.name(), output.name())));
      ++files;
    }
  }
  if (files > 0) return absl::OkStatus();
  return absl::NotFoundError(
      fmt::format("{} has made no files{}", workflow.name(),
                  all ? "" : "; --all downloads what steps pass to each other, too"));
}

}  // namespace quench::cli
