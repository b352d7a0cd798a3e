#include "services/codegen/targets/cuda.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "services/codegen/targets/derive.h"
#include "services/codegen/targets/spec.h"

namespace quench::codegen {
namespace {

struct CudaArch {
  std::string name;
  uint64_t bit;
  std::string ptx;     // LLVM's feature
  std::string driver;  // CUDA version
};

const std::vector<CudaArch>& Archs() {
  static const auto* const kArchs = new std::vector<CudaArch>{
#define QUENCH_CUDA_ARCH(name, bit, ptx, driver) {name, QUENCH_CUDA_##bit, ptx, driver},
#include "services/codegen/targets/cuda_archs.def"
  };
  return *kArchs;
}

// Cards after the last row.
const std::vector<std::string>& NewerArchs() {
  static const auto* const kNewer =
      new std::vector<std::string>{"sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121"};
  return *kNewer;
}

bool IsNewer(const std::string& arch) {
  return std::find(NewerArchs().begin(), NewerArchs().end(), arch) != NewerArchs().end();
}

// "ptx71": 7.1.
std::string PtxVersionOf(const CudaArch& row) {
  const std::string digits = row.ptx.substr(std::string_view("ptx").size());
  return digits.substr(0, digits.size() - 1) + "." + digits.back();
}

absl::StatusOr<CudaArch> ArchOf(const std::string& name) {
  std::vector<std::string> names;
  for (const CudaArch& each : Archs()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  if (IsNewer(name)) return Archs().back();
  names.insert(names.end(), NewerArchs().begin(), NewerArchs().end());
  const std::string shown = name.substr(0, kShown);
  return InvalidArgument("unknown arch `{}`, similar ones are `{}`", shown,
                         fmt::join(NearNames(shown, names, 3), "`, `"));
}

// One number at a time: threads are the lanes.
Target OneLane(Target target) {
  target.vector_bits = 32;
  target.vector_registers = 64;
  target.divides_words = true;
  target.soft_float_calls = false;
  target.multiply_by_lane = false;
  target.add_products_u8 = target.add_products_i8 = "";
  target.add_pairs_of_bytes = target.add_pairs_of_words = target.sign_of_bytes = "";
  target.add_products_bf16 = target.narrow_to_bf16 = "";
  target.pick_of_16 = target.pick_of_64 = target.pick_of_16_floats = "";
  target.sums_halves = false;
  target.matrices = {};
  target.panel_lanes = 0;
  target.gbytes = 300;  // for the cost model: a card in the middle
  target.gflops = 10e3;
  return target;
}

}  // namespace

std::vector<std::string> CudaArchs() {
  std::vector<std::string> names;
  for (const CudaArch& each : Archs()) names.push_back(each.name);
  return names;
}

std::vector<CudaArchNote> CudaArchNotes() {
  std::vector<CudaArchNote> notes;
  for (const CudaArch& each : Archs()) {
    notes.push_back({each.name, fmt::format("PTX {}, for drivers from CUDA {} on",
                                            PtxVersionOf(each), each.driver)});
  }
  for (const std::string& each : NewerArchs()) {
    notes.push_back({each, fmt::format("PTX {} of {}, for drivers that know the GPU",
                                       PtxVersionOf(Archs().back()), Archs().back().name)});
  }
  return notes;
}

std::string OlderCodeOf(const std::string& arch) {
  return IsNewer(arch) ? fmt::format("PTX of {}", Archs().back().name) : "";
}

absl::StatusOr<std::shared_ptr<const Target>> CudaTarget(const std::string& arch,
                                                         const Target& host) {
  if (arch == kEmulatedArch) {
    Target target = OneLane(WithoutMatrices(host));
    target.name = "cuda-emulated";
    target.gpu = Gpu{.arch = arch, .features = QUENCH_CUDA_EMULATED, .emulated = true};
    target.gpu->busy_threads = 128;  // so that small tensors test what large ones need
    return std::make_shared<const Target>(std::move(target));
  }
  QUENCH_ASSIGN_OR_RETURN(const CudaArch row, ArchOf(arch));
  Target target = OneLane(Target{});
  target.name = "cuda-" + row.name;
  target.triple = "nvptx64-nvidia-cuda";
  target.baseline = target.cpu = row.name;
  target.features = "+" + row.ptx;
  target.fma = true;
  target.converts_halves = true;
  target.gpu = Gpu{.arch = row.name, .features = row.bit, .driver = row.driver};
  return std::make_shared<const Target>(std::move(target));
}

absl::StatusOr<Target> WithDevice(const Target& host, const std::string& arch) {
  if (host.pointer_bits != 64)
    return InvalidArgument("`{}` has addresses of {} bits, GPUs need a host with 64", host.name,
                           host.pointer_bits);
  Target target = WithoutMatrices(host);
  QUENCH_ASSIGN_OR_RETURN(target.device, CudaTarget(arch, host));
  target.name = target.device->name;
  return target;
}

}  // namespace quench::codegen
