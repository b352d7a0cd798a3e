#include "services/codegen/packs/pack.h"

#include "common/base/status.h"
#include "services/codegen/packs/request.h"

namespace quench::codegen {
namespace {

absl::StatusOr<Packed> Dispatch(const PackSpec& spec, std::span<const Tensor* const> sources) {
  static constexpr std::pair<const char*, absl::StatusOr<Packed> (*)(const Request&)>
      kTransforms[] = {
#define QUENCH_PACK(name, Function) {#name, Function},
#include "services/codegen/packs/packs.def"
#undef QUENCH_PACK
      };
  if (sources.empty()) return Internal("pack `{}`: no source", spec.transform);
  for (const auto& [name, pack] : kTransforms) {
    if (spec.transform == name) return pack(Request(spec, sources));
  }
  return Internal("pack `{}`: unknown transform", spec.transform);
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> Pack(const PackSpec& spec,
                                            std::span<const Tensor* const> sources) {
  QUENCH_ASSIGN_OR_RETURN(const Packed packed, Dispatch(spec, sources));
  std::vector<std::byte> out(static_cast<size_t>(packed.bytes));
  packed.write(out.data());
  return out;
}

}  // namespace quench::codegen
