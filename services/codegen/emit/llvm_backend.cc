#include "services/codegen/emit/llvm_backend.h"

#include <utility>

#include "common/base/status.h"
#include "services/codegen/emit/artifact.h"
#include "services/codegen/emit/model_entry.h"
#include "services/codegen/emit/module.h"

namespace quench::codegen {
namespace {

class LlvmModule : public CodeModule {
 public:
  LlvmModule(Target target, std::unique_ptr<ModuleBuilder> builder)
      : target_(std::move(target)), builder_(std::move(builder)) {}

  absl::Status AddVariant(const Program& program, const std::vector<uint64_t>& weight_offsets,
                          const std::string& symbol) override {
    return EmitVariant(*builder_, program, target_, weight_offsets, symbol);
  }
  absl::Status AddModel(const ModelTables& model) override { return EmitModel(*builder_, model); }
  absl::Status AddHelpers() override { return EmitMemoryFunctions(*builder_); }
  absl::StatusOr<std::string> Finish(const EmissionProgress& progress) override {
    return builder_->Finish(progress);
  }

 private:
  Target target_;
  std::unique_ptr<ModuleBuilder> builder_;
};

class Llvm : public Backend {
 public:
  absl::StatusOr<std::unique_ptr<CodeModule>> NewModule(
      const Target& target, const std::string& prefix,
      const std::string& link_prefix) const override {
    QUENCH_ASSIGN_OR_RETURN(auto builder, ModuleBuilder::Create(target, prefix, link_prefix));
    return std::make_unique<LlvmModule>(target, std::move(builder));
  }
};

}  // namespace

const Backend& LlvmBackend() {
  static const auto* const kBackend = new Llvm;
  return *kBackend;
}

}  // namespace quench::codegen
