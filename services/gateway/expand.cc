#include "services/gateway/expand.h"

#include <absl/strings/str_split.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/steps/manifest.h"

namespace quench::gateway {
namespace {

constexpr size_t kMaxTitle = 255;
constexpr size_t kMaxSalt = 128;
constexpr size_t kMaxLabels = 64;
constexpr size_t kMaxFleetName = 100;
constexpr int kMaxShards = 100'000;
constexpr int kMaxPriority = 100;
// Limit for all dependencies' names: each stands in every message that has the whole workflow.
constexpr size_t kMaxNameBytes = size_t{2} << 20;

void CheckDuration(const google::protobuf::Duration& duration, const std::string& path,
                   Violations* violations) {
  constexpr int64_t kLongest = int64_t{366} * 24 * 3600;
  if (duration.seconds() < 0 || duration.nanos() < 0 || duration.seconds() > kLongest)
    violations->Add(path, fmt::format("is {} s, must be 0 to {} s", duration.seconds(), kLongest));
}

bool HasControls(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; });
}

void CheckLabels(const google::protobuf::Map<std::string, std::string>& labels,
                 Violations* violations) {
  if (labels.size() > kMaxLabels) {
    violations->Add("spec.labels",
                    fmt::format("has {} labels, at most {} are kept", labels.size(), kMaxLabels));
  }
  for (const auto& [name, value] : labels) {
    const std::string path = fmt::format("spec.labels[{}]", name.substr(0, 80));
    if (name.size() > 63 || !IsStepName(name, true)) {
      violations->Add(path, "must be named by 1 to 63 letters, digits, `_`, `-`, `.` and `/`");
    }
    if (value.size() > 255 || HasControls(value)) {
      violations->Add(path, "must be at most 255 bytes without control characters");
    }
  }
}

void CheckFleet(const v1::FleetShard& fleet, Violations* violations) {
  if (fleet.fleet().size() > kMaxFleetName || !IsStepName(fleet.fleet(), false)) {
    violations->Add("spec.fleet.fleet",
                    fmt::format("is `{}`, must be 1 to {} letters, digits, `_`, `-` and `.`",
                                fleet.fleet().substr(0, kMaxFleetName), kMaxFleetName));
  }
  if (fleet.shards() < 1 || fleet.shards() > kMaxShards) {
    violations->Add("spec.fleet.shards",
                    fmt::format("is {}, must be 1 to {}", fleet.shards(), kMaxShards));
  }
  if (fleet.shard() < 0 || fleet.shard() >= std::max(1, fleet.shards())) {
    violations->Add("spec.fleet.shard", fmt::format("is {}, must be 0 to {}", fleet.shard(),
                                                    std::max(1, fleet.shards()) - 1));
  }
}

void CheckCommon(const v1::WorkflowSpec& spec, Violations* violations) {
  if (spec.title().size() > kMaxTitle) {
    violations->Add("spec.title", fmt::format("has {} bytes, at most {} are kept",
                                              spec.title().size(), kMaxTitle));
  }
  if (spec.salt().size() > kMaxSalt) {
    violations->Add("spec.salt",
                    fmt::format("has {} bytes, at most {} count", spec.salt().size(), kMaxSalt));
  }
  CheckLabels(spec.labels(), violations);
  if (spec.has_fleet()) CheckFleet(spec.fleet(), violations);
  if (spec.priority() < -kMaxPriority || spec.priority() > kMaxPriority) {
    violations->Add("spec.priority", fmt::format("is {}, must be {} to {}", spec.priority(),
                                                 -kMaxPriority, kMaxPriority));
  }
  CheckDuration(spec.patience(), "spec.patience", violations);
  CheckDuration(spec.timeout(), "spec.timeout", violations);
  CheckDuration(spec.step_timeout(), "spec.step_timeout", violations);
  if (!step::v1::CacheMode_IsValid(spec.cache())) {
    violations->Add("spec.cache",
                    fmt::format("is {}, which is not a CacheMode", static_cast<int>(spec.cache())));
  }
}

void CheckNameBytes(const v1::StepList& steps, const std::string& path, Violations* violations) {
  size_t bytes = 0;
  for (const v1::StepSpec& spec : steps.steps()) {
    bytes += spec.name().size();
    for (const v1::Binding& binding : spec.bindings()) bytes += binding.step().size();
  }
  if (bytes > kMaxNameBytes) {
    violations->Add(path, fmt::format("has {} bytes of names in steps and bindings, at most {} fit "
                                      "into a message: give shorter names",
                                      bytes, kMaxNameBytes));
  }
}

}  // namespace

// Names become paths where outputs are downloaded: none leads out of its folder.
bool IsStepName(const std::string& text, bool slash) {
  if (text.empty() || text.size() > 255) return false;
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
        return part.empty() || part == "." || part == "..";
      })) {
    return false;
  }
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || (slash && c == '/');
  });
}

std::vector<std::vector<int>> DependenciesOf(const v1::StepList& steps) {
  std::map<std::string, int> positions;
  for (int i = 0; i < steps.steps_size(); ++i) positions.emplace(steps.steps(i).name(), i);
  std::vector<std::vector<int>> dependencies;
  for (const v1::StepSpec& spec : steps.steps()) {
    std::set<int> found;
    for (const v1::Binding& binding : spec.bindings()) {
      const auto position = positions.find(binding.step());
      if (position != positions.end()) found.insert(position->second);
    }
    dependencies.emplace_back(found.begin(), found.end());
  }
  return dependencies;
}

void internal::AddTooLarge(const std::string& path, int64_t max_bytes, Violations* violations) {
  violations->Add(
      path, fmt::format("becomes steps of more than {} bytes of memory, as many as a workflow "
                        "may take: make several workflows, or shorten what all steps repeat",
                        max_bytes));
}

absl::StatusOr<v1::WorkflowSpec> Expand(const v1::WorkflowSpec& spec, int64_t max_bytes) {
  Violations violations;
  CheckCommon(spec, &violations);
  v1::StepList steps;
  std::string path = "spec.steps.steps";
  switch (spec.work_case()) {
    case v1::WorkflowSpec::kCompile:
      steps = internal::WriteOut(spec.compile(), max_bytes, &violations);
      path = "spec.compile";
      break;
    case v1::WorkflowSpec::kAnalyse:
      steps = internal::WriteOut(spec.analyse(), max_bytes, &violations);
      path = "spec.analyse";
      break;
    case v1::WorkflowSpec::kSteps:
      steps = spec.steps();
      if (steps.SpaceUsedLong() > static_cast<size_t>(max_bytes))
        internal::AddTooLarge("spec.steps", max_bytes, &violations);
      break;
    case v1::WorkflowSpec::WORK_NOT_SET:
      violations.Add("spec.work", "is missing: `compile`, `analyse` or `steps`");
  }
  // A preset that is wrong gave no steps, and has been reported.
  std::vector<int> order;
  if (spec.has_steps() || violations.empty()) {
    order = internal::CheckSteps(steps, path, &violations);
    CheckNameBytes(steps, path, &violations);
  }
  QUENCH_RETURN_IF_ERROR(violations.Finish());
  v1::WorkflowSpec expanded = spec;
  v1::StepList* sorted = expanded.mutable_steps();
  sorted->clear_steps();
  for (const int i : order) sorted->add_steps()->Swap(steps.mutable_steps(i));
  return expanded;
}

std::vector<Digest> InputsOf(const v1::StepList& steps) {
  std::map<std::string, Digest> inputs;
  for (const v1::StepSpec& spec : steps.steps()) {
    for (const Digest& digest : DigestsIn(RequestOf(spec))) inputs.emplace(digest.hash(), digest);
  }
  std::vector<Digest> digests;
  for (const auto& [hash, digest] : inputs) digests.push_back(digest);
  return digests;
}

int64_t BytesOf(const v1::WorkflowSpec& expanded, size_t samples) {
  constexpr size_t kBytesOfAName = 128;  // a hash, pinned
  return static_cast<int64_t>(expanded.SpaceUsedLong() + samples * kBytesOfAName);
}

absl::StatusOr<std::vector<Digest>> SamplesIn(const std::string& tenant, const v1::StepList& steps,
                                              const ReadBlob& read, int64_t max_bytes) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<BlobId> manifests, steps::ManifestsIn(steps));
  uint64_t bytes = 0;
  for (const BlobId& id : manifests) bytes += id.size;
  if (bytes > static_cast<uint64_t>(max_bytes)) {
    return InvalidArgument("the steps name {} bytes of manifests of samples, at most {} are read",
                           bytes, max_bytes);
  }
  std::map<std::string, Digest> samples;
  for (const BlobId& id : manifests) {
    Digest digest;
    digest.set_hash(id.hash);
    digest.set_size_bytes(static_cast<int64_t>(id.size));
    QUENCH_ASSIGN_OR_RETURN(const std::string content, read(tenant, digest));
    const auto manifest = steps::ParseManifest(content);
    if (!manifest.ok())
      return Annotate(manifest.status(), fmt::format("manifest blobs/{}/{}", id.hash, id.size));
    for (const step::v1::File& file : manifest->files())
      samples.emplace(file.digest().hash(), file.digest());
  }
  std::vector<Digest> digests;
  for (auto& [hash, digest] : samples) digests.push_back(std::move(digest));
  return digests;
}

absl::Status CheckBlobs(const std::string& tenant, const std::vector<Digest>& needed,
                        const MissingBlobs& missing) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> absent, missing(tenant, needed));
  if (absent.empty()) return absl::OkStatus();
  absl::Status status =
      rpc::Error(rpc::Reason::kBlobMissing,
                 fmt::format("{} of {} blobs are not in the store: upload them first",
                             absent.size(), needed.size()));
  for (const Digest& digest : absent) {
    status = rpc::WithPrecondition(
        std::move(status),
        {"MISSING", fmt::format("blobs/{}/{}", digest.hash(), digest.size_bytes()),
         "must be uploaded before the workflow is created"});
  }
  return status;
}

}  // namespace quench::gateway
