#include "services/cli/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runtime/quench_rt.h"

namespace quench::cli {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double Gbytes(const ProfiledKernel& kernel) {
  return kernel.seconds > 0 ? 1e-9 * kernel.bytes / kernel.seconds : 0;
}

bool ReadsFloats(const ProfiledKernel& kernel) { return kernel.dtype == "f32"; }

// Name of the bound that takes longer at the machine's ceilings.
const char* Bound(const Profile& profile, double peak, const ProfiledKernel& kernel) {
  if (!profile.ceilings || (kernel.performed == 0 && kernel.bytes == 0)) return "";
  const double compute = 2 * kernel.performed / peak;
  return compute > kernel.bytes / profile.ceilings->gbytes ? "compute" : "memory";
}

// "84%" of the peak, "" where that says nothing.
std::string PeakShare(double peak, const ProfiledKernel& kernel) {
  const double gflops = Gflops(kernel);
  return peak > 0 && gflops > 0 && ReadsFloats(kernel) ? fmt::format("{:.0f}%", 100 * gflops / peak)
                                                       : "";
}

std::string PeakText(const Profile& profile) {
  const ProfilePeak peak = PeakOf(profile);
  const std::string from =
      peak.kernel == nullptr
          ? profile.ceilings->source
          : fmt::format("reached by kernel `{}`, above the measured peak", peak.kernel->node);
  return fmt::format(
      "peak: {:.1f} GFLOP/s of f32 on {} thread{} ({}), {:.1f} GB/s; GFLOP/s count the operations "
      "actually executed; Winograd convolutions execute fewer\n",
      peak.gflops, profile.threads, profile.threads == 1 ? "" : "s", from,
      profile.ceilings->gbytes);
}

std::map<std::string, int64_t> SizesOf(const nlohmann::json& metadata) {
  std::map<std::string, int64_t> sizes;
  if (!metadata.is_object() || !metadata.contains("typical_sizes")) return sizes;
  for (const auto& [name, size] : metadata["typical_sizes"].items()) {
    if (size.is_number_integer()) sizes[name] = size.get<int64_t>();
  }
  return sizes;
}

// The `counted` sizes of symbolic dims that have others in `inputs`.
std::map<std::string, int64_t> OtherSizes(const std::map<std::string, int64_t>& counted,
                                          Artifact& artifact, std::span<const Tensor> inputs) {
  std::map<std::string, int64_t> others;
  const std::vector<ArtifactTensor>& declared = artifact.inputs();
  for (size_t i = 0; i < declared.size() && i < inputs.size(); ++i) {
    for (size_t axis = 0; axis < declared[i].dims.size(); ++axis) {
      const ArtifactDim& dim = declared[i].dims[axis];
      if (dim.value >= 0) continue;
      const auto size = counted.find(dim.symbol);
      if (size != counted.end() && size->second != inputs[i].dims()[axis]) others.insert(*size);
    }
  }
  return others;
}

}  // namespace

double Gflops(const ProfiledKernel& kernel) {
  return kernel.seconds > 0 && kernel.performed > 0 ? 2e-9 * kernel.performed / kernel.seconds : 0;
}

ProfilePeak PeakOf(const Profile& profile) {
  if (!profile.ceilings) return {};
  const double cores = quench_rt_cpus();
  ProfilePeak peak;
  peak.gflops = profile.ceilings->gflops * std::min<double>(profile.threads, cores) / cores;
  for (const ProfiledKernel& kernel : profile.kernels) {
    if (!ReadsFloats(kernel) || Gflops(kernel) <= peak.gflops) continue;
    peak = {Gflops(kernel), &kernel};
  }
  return peak;
}

double Profile::seconds() const {
  double sum = 0;
  for (const ProfiledKernel& kernel : kernels) sum += kernel.seconds;
  return sum;
}

absl::StatusOr<Profile> MeasureProfile(Artifact& artifact, std::span<const Tensor> inputs,
                                       double seconds, int threads, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(artifact.Profile(inputs).status());
  Profile profile;
  profile.threads = threads;
  std::vector<std::vector<double>> times;
  constexpr int64_t kLeast = 3, kMost = 100'000;
  const Clock::time_point start = Clock::now();
  while (profile.runs < kLeast || (Since(start) < seconds && profile.runs < kMost)) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    QUENCH_ASSIGN_OR_RETURN(const std::vector<NodeTiming> run, artifact.Profile(inputs));
    if (times.empty()) {
      times.resize(run.size());
      for (const NodeTiming& node : run) {
        ProfiledKernel& kernel = profile.kernels.emplace_back();
        kernel.node = node.node;
        kernel.kernel = node.kernel;
      }
    }
    for (size_t i = 0; i < run.size(); ++i) times[i].push_back(run[i].seconds);
    ++profile.runs;
  }
  for (size_t i = 0; i < times.size(); ++i) profile.kernels[i].seconds = Median(times[i]);
  return profile;
}

std::map<std::string, int64_t> CountedSizes(const std::filesystem::path& metadata,
                                            Artifact& artifact) {
  const absl::StatusOr<std::string> text = ReadFile(metadata);
  if (!text.ok()) return {};
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const bool same = json.is_object() && json.contains("uuid") && json["uuid"] == artifact.uuid();
  if (!same) return {};
  // Nobody asked for these sizes: what the library does not take is left out.
  const std::map<std::string, int64_t> counted = SizesOf(json);
  std::map<std::string, int64_t> sizes;
  for (const ArtifactTensor& input : artifact.inputs()) {
    for (const ArtifactDim& dim : input.dims) {
      const auto size = counted.find(dim.symbol);
      if (dim.value < 0 && size != counted.end() && size->second >= dim.min &&
          size->second <= dim.max)
        sizes.insert(*size);
    }
  }
  return sizes;
}

absl::Status Describe(const std::filesystem::path& metadata, Artifact& artifact,
                      std::span<const Tensor> inputs, Profile& profile) {
  QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(metadata));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto is_described = [](const nlohmann::json& kernel) {
    return kernel.is_object() && kernel.contains("node") && kernel.contains("kernel") &&
           kernel.value("multiplications", nlohmann::json()).is_number() &&
           kernel.value("bytes", nlohmann::json()).is_number() &&
           kernel.value("cost", nlohmann::json()).is_number();
  };
  if (!json.is_object() || !json.value("kernels", nlohmann::json()).is_array()) {
    return InvalidArgument(
        "`{}` contains no list of kernels: write it with `quench compile --export-metadata`",
        metadata.string());
  }
  const nlohmann::json& kernels = json["kernels"];
  if (json.value("uuid", "") != artifact.uuid()) {
    return InvalidArgument("`{}` belongs to library {}, not to {}", metadata.string(),
                           json.value("uuid", "without a UUID"), artifact.uuid());
  }
  bool same = kernels.size() == profile.kernels.size();
  for (size_t i = 0; same && i < kernels.size(); ++i) {
    same = is_described(kernels[i]) && kernels[i]["node"] == profile.kernels[i].node &&
           kernels[i]["kernel"] == profile.kernels[i].kernel;
  }
  if (!same) {
    return InvalidArgument(
        "`{}` lists the kernels of the library's strongest variant, but this CPU runs variant `{}`",
        metadata.string(), artifact.variant());
  }
  profile.counted_sizes = OtherSizes(SizesOf(json), artifact, inputs);
  for (size_t i = 0; i < kernels.size(); ++i) {
    ProfiledKernel& kernel = profile.kernels[i];
    kernel.runner_up = kernels[i].value("runner_up", "");
    kernel.reason = kernels[i].value("reason", "");
    if (!profile.counted_sizes.empty()) continue;
    kernel.predicted_us = kernels[i]["cost"];
    kernel.multiplications = kernels[i]["multiplications"];
    // Metadata of earlier versions has neither.
    kernel.performed = kernels[i].value("performed", kernel.multiplications);
    kernel.dtype = kernels[i].value("dtype", "");
    kernel.bytes = kernels[i]["bytes"];
  }
  profile.described = true;
  return absl::OkStatus();
}

std::string ProfileTable(const Profile& profile) {
  size_t width = 4;
  for (const ProfiledKernel& kernel : profile.kernels) width = std::max(width, kernel.node.size());
  width = std::min<size_t>(width, 48);
  const double all = profile.seconds();
  const bool counted = profile.described && profile.counted_sizes.empty();
  std::string text =
      fmt::format("{:>10} {:>6}  {:<{}}  {:<10}", "us", "share", "node", width, "kernel");
  if (counted) {
    text += fmt::format(" {:>8} {:>6} {:>8} {:>7}  {:<8} {:>10}", "GFLOP/s", "peak", "MB", "GB/s",
                        "bound", "predicted");
  }
  if (profile.described) text += "  runner-up";
  text += "\n";
  const double peak = PeakOf(profile).gflops;
  for (const ProfiledKernel& kernel : profile.kernels) {
    const std::string node =
        kernel.node.size() > width ? kernel.node.substr(0, width - 3) + "..." : kernel.node;
    text += fmt::format("{:>10.1f} {:>5.1f}%  {:<{}}  {:<10}", 1e6 * kernel.seconds,
                        all > 0 ? 100 * kernel.seconds / all : 0, node, width, kernel.kernel);
    if (counted) {
      const double gflops = Gflops(kernel);
      text += fmt::format(" {:>8} {:>6} {:>8.2f} {:>7.1f}  {:<8} {:>10.1f}",
                          gflops > 0 ? fmt::format("{:.1f}", gflops) : "", PeakShare(peak, kernel),
                          1e-6 * kernel.bytes, Gbytes(kernel), Bound(profile, peak, kernel),
                          kernel.predicted_us);
    }
    if (profile.described) text += "  " + kernel.runner_up;
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  text += fmt::format("{:>10.1f} 100.0%  {} kernels, medians of {} runs\n", 1e6 * all,
                      profile.kernels.size(), profile.runs);
  if (!profile.counted_sizes.empty()) {
    text += "for GFLOP/s, bytes, bounds and predictions, run at the sizes they were counted at:";
    for (const auto& [name, size] : profile.counted_sizes)
      text += fmt::format(" --size {}={}", name, size);
    text += "\n";
  } else if (profile.ceilings) {
    text += PeakText(profile);
  } else {
    text +=
        "with metadata.json of `quench compile --export-metadata` beside the library: GFLOP/s, "
        "bytes, "
        "bounds, predictions and runners-up, too\n";
  }
  return text;
}

nlohmann::json ProfileToJson(const Profile& profile) {
  nlohmann::json kernels = nlohmann::json::array();
  const ProfilePeak peak = PeakOf(profile);
  for (const ProfiledKernel& kernel : profile.kernels) {
    nlohmann::json row = {
        {"node", kernel.node}, {"kernel", kernel.kernel}, {"us", 1e6 * kernel.seconds}};
    if (profile.described) row.update({{"runner_up", kernel.runner_up}, {"reason", kernel.reason}});
    if (profile.described && profile.counted_sizes.empty()) {
      row.update({{"gflops", Gflops(kernel)},
                  {"gbytes", Gbytes(kernel)},
                  {"bytes", kernel.bytes},
                  {"multiplications", kernel.multiplications},
                  {"performed", kernel.performed},
                  {"dtype", kernel.dtype},
                  {"bound", Bound(profile, peak.gflops, kernel)},
                  {"predicted_us", kernel.predicted_us}});
    }
    kernels.push_back(std::move(row));
  }
  nlohmann::json json = {{"runs", profile.runs},
                         {"threads", profile.threads},
                         {"us", 1e6 * profile.seconds()},
                         {"kernels", kernels}};
  if (!profile.counted_sizes.empty()) json["counted_sizes"] = profile.counted_sizes;
  if (profile.ceilings) {
    json["peak_gflops"] = peak.gflops;
    json["peak_gbytes"] = profile.ceilings->gbytes;
    json["peak_source"] = peak.kernel == nullptr ? profile.ceilings->source : peak.kernel->node;
  }
  return json;
}

std::string ProfileTrace(const Profile& profile, const std::string& name) {
  nlohmann::json events = nlohmann::json::array();
  events.push_back({{"ph", "M"}, {"pid", 1}, {"name", "process_name"}, {"args", {{"name", name}}}});
  double at = 0;
  const nlohmann::json rows = ProfileToJson(profile)["kernels"];
  for (size_t i = 0; i < profile.kernels.size(); ++i) {
    const ProfiledKernel& kernel = profile.kernels[i];
    events.push_back({{"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"name", kernel.node},
                      {"cat", kernel.kernel},
                      {"ts", at},
                      {"dur", 1e6 * kernel.seconds},
                      {"args", rows[i]}});
    at += 1e6 * kernel.seconds;
  }
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n";
}

}  // namespace quench::cli
