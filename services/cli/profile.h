// Where the time of a compiled library goes, kernel by kernel.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/runner/runner.h"
#include "services/analyser/analyser.h"

namespace quench::cli {

struct ProfiledKernel {
  std::string node, kernel;
  double seconds = 0;  // median of the runs
  // From metadata.json; empty and 0 without it.
  std::string runner_up, reason;
  double predicted_us = 0;
  double multiplications = 0, bytes = 0;  // of convolutions by their definition
  double performed = 0;                   // multiplications that the kernel really does
  std::string dtype;                      // of its first operand
};

struct Profile {
  std::vector<ProfiledKernel> kernels;  // in the order in which they run
  int64_t runs = 0;
  int threads = 1;
  bool described = false;  // by metadata.json
  // Sizes of symbolic dims that metadata.json has counts and predictions of, where this run had others:
  // these are left out.
  std::map<std::string, int64_t> counted_sizes;
  // Peak of all cores of the machine together; only where kernels are described.
  std::optional<analyser::Ceilings> ceilings;
  double seconds() const;
};

// 1e9 additions and multiplications a second that the kernel really does.
double Gflops(const ProfiledKernel& kernel);

// The most that the run's threads can do, 0 where ceilings are not known.
struct ProfilePeak {
  double gflops = 0;
  const ProfiledKernel* kernel =
      nullptr;  // that has done more than the ceilings say: the peak is what it did
};
// Kernels on f32 alone set a peak, and are compared with it: others have instructions that do more at once.
ProfilePeak PeakOf(const Profile& profile);

// Runs the library for about `seconds`, at least three times after one that warms it up.
absl::StatusOr<Profile> MeasureProfile(Artifact& artifact, std::span<const Tensor> inputs,
                                       double seconds, int threads, const StepContext& context);

// Adds what `quench compile --export-metadata` wrote of the same library, whose runs had `inputs`.
// INVALID_ARGUMENT where the file is of another one, of another variant, or no such file.
// Sizes of symbolic dims that metadata.json, where it is of this library, has counts and predictions of.
std::map<std::string, int64_t> CountedSizes(const std::filesystem::path& metadata,
                                            Artifact& artifact);

absl::Status Describe(const std::filesystem::path& metadata, Artifact& artifact,
                      std::span<const Tensor> inputs, Profile& profile);

std::string ProfileTable(const Profile& profile);
nlohmann::json ProfileToJson(const Profile& profile);
// One run of median times in the Trace Event Format, which Perfetto and Chromium show.
std::string ProfileTrace(const Profile& profile, const std::string& name);

}  // namespace quench::cli
