#include "services/codegen/targets/cpu_names.h"

#include <absl/synchronization/mutex.h>
#include <fmt/ranges.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Support/TargetSelect.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "common/base/status.h"
#include "services/codegen/emit/compat.h"

namespace quench::codegen {
namespace {

absl::Status UnknownTriple(const std::string& triple) {
  return InvalidArgument("triple `{}` is unknown to LLVM", triple);
}

absl::StatusOr<const llvm::Target*> LlvmTargetOf(const std::string& triple) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
  });
  std::string error;
  const llvm::Target* backend = compat::LookupTarget(triple, error);
  if (backend == nullptr) return UnknownTriple(triple);
  return backend;
}

absl::StatusOr<std::unique_ptr<llvm::MCSubtargetInfo>> Subtarget(const std::string& triple,
                                                                 const std::string& cpu,
                                                                 const std::string& features) {
  QUENCH_ASSIGN_OR_RETURN(const llvm::Target* backend, LlvmTargetOf(triple));
  std::unique_ptr<llvm::MCSubtargetInfo> info(
      compat::CreateSubtarget(*backend, triple, cpu, features));
  if (info == nullptr) return UnknownTriple(triple);
  return info;
}

bool HasHardFloats(const llvm::Triple& triple) {
  switch (triple.getEnvironment()) {
    case llvm::Triple::GNUEABIHF:
    case llvm::Triple::MuslEABIHF:
    case llvm::Triple::EABIHF:
      return true;
    default:
      return triple.getArch() != llvm::Triple::arm && triple.getArch() != llvm::Triple::thumb;
  }
}

}  // namespace

TripleParts PartsOf(const std::string& triple) {
  const llvm::Triple parsed(llvm::Triple::normalize(triple));
  TripleParts parts;
  if (parsed.getArch() == llvm::Triple::UnknownArch) return parts;
  parts.architecture = llvm::Triple::getArchTypeName(parsed.getArch()).str();
  parts.system = parsed.getOS() == llvm::Triple::UnknownOS
                     ? parsed.getOSName().str()
                     : llvm::Triple::getOSTypeName(parsed.getOS()).str();
  parts.environment = parsed.getEnvironment() == llvm::Triple::UnknownEnvironment
                          ? parsed.getEnvironmentName().str()
                          : llvm::Triple::getEnvironmentTypeName(parsed.getEnvironment()).str();
  parts.object_format = llvm::Triple::getObjectFormatTypeName(parsed.getObjectFormat()).str();
  parts.hard_floats = HasHardFloats(parsed);
  parts.little_endian = parsed.isLittleEndian();
  return parts;
}

absl::StatusOr<const CpuNames*> NamesOfCpus(const std::string& triple) {
  static absl::Mutex mutex;
  static auto* const known = new std::map<const llvm::Target*, CpuNames>;
  QUENCH_ASSIGN_OR_RETURN(const llvm::Target* backend, LlvmTargetOf(triple));
  const absl::MutexLock lock(&mutex);
  if (const auto found = known->find(backend); found != known->end()) return &found->second;
  QUENCH_ASSIGN_OR_RETURN(const auto info, Subtarget(triple, "", ""));
  CpuNames& names = (*known)[backend];
  for (const auto& cpu : info->getAllProcessorDescriptions()) names.cpus.emplace_back(cpu.Key);
  for (const auto& feature : info->getAllProcessorFeatures())
    names.features.emplace_back(feature.Key);
  return &names;
}

absl::StatusOr<std::vector<std::string>> FeaturesOf(const std::string& triple,
                                                    const std::string& cpu,
                                                    const std::vector<std::string>& changes) {
  QUENCH_ASSIGN_OR_RETURN(const auto info,
                          Subtarget(triple, cpu, fmt::format("{}", fmt::join(changes, ","))));
  std::vector<std::string> features;
  for (const auto& feature : info->getAllProcessorFeatures()) {
    if (info->getFeatureBits().test(feature.Value)) features.emplace_back(feature.Key);
  }
  std::sort(features.begin(), features.end());
  return features;
}

}  // namespace quench::codegen
