#include "services/cli/precision_sensitivity.h"

#include <algorithm>
#include <limits>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/passes/float16.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/switches.h"

namespace quench::cli {
namespace {

constexpr char kOthers[] = "operators between layers";

// The layers to round, and the place of each among all.
struct Rounding {
  std::vector<quantizer::RoundedLayer> layers;
  std::vector<size_t> places;
};

class RoundingFinder {
 public:
  explicit RoundingFinder(const HalvesJob& job) : job_(job), module_(job.from.module) {
    for (const Precision type : {Precision::kF16, Precision::kBF16}) {
      passes::PassOptions options = job.from.passes;
      options.store_as = StoredAs(type);
      reasons_[type] = passes::WhyFloat32(module_, options);
    }
  }

  Rounding Run() {
    std::map<std::string, std::vector<NodeId>> nodes;
    for (size_t i = 0; i < module_.nodes.size(); ++i)
      nodes[NameInModel(module_.nodes[i])].push_back(static_cast<NodeId>(i));
    std::vector<bool> taken(module_.nodes.size(), false);
    for (size_t i = 0; i < job_.layers.size(); ++i) {
      std::vector<NodeId> all;
      for (const std::string& member : job_.layers[i].members) {
        const std::vector<NodeId>& more = nodes.at(member);
        all.insert(all.end(), more.begin(), more.end());
        for (const NodeId id : more) taken[static_cast<size_t>(id)] = true;
      }
      Add(i, job_.layers[i].name, HalfOf(job_.layers[i], job_.types.layers[i], job_.floats), all);
    }
    std::vector<NodeId> rest;
    for (size_t i = 0; i < taken.size(); ++i) {
      if (!taken[i]) rest.push_back(static_cast<NodeId>(i));
    }
    Add(Demotion::kOthers, kOthers, job_.types.others, rest);
    return std::move(found_);
  }

 private:
  void Add(size_t place, const std::string& name, Precision type, const std::vector<NodeId>& all) {
    const auto reasons = reasons_.find(type);
    if (reasons == reasons_.end()) return;
    quantizer::RoundedLayer layer{name, StoredAs(type), {}};
    for (const NodeId id : all) {
      if (reasons->second[static_cast<size_t>(id)].empty()) layer.nodes.push_back(id);
    }
    if (layer.nodes.empty()) return;
    found_.layers.push_back(std::move(layer));
    found_.places.push_back(place);
  }

  const HalvesJob& job_;
  const Graph& module_;
  std::map<Precision, std::vector<std::string>> reasons_;  // by node, why it stays f32
  Rounding found_;
};

}  // namespace

Sensitivities SensitivityOfIntegers(std::span<const PrecisionLayer> layers,
                                    const quantizer::Selection& selection) {
  Sensitivities sensitivities;
  for (const quantizer::LayerSensitivity& each : selection.layers) {
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::vector<std::string>& products = layers[i].products;
      if (std::find(products.begin(), products.end(), each.node) == products.end()) continue;
      const auto [known, fresh] = sensitivities.emplace(i, each.alone.sqnr_db);
      known->second = std::min(known->second, each.alone.sqnr_db);
    }
  }
  return sensitivities;
}

absl::StatusOr<Sensitivities> SensitivityOfHalves(const HalvesJob& job,
                                                  const StepContext& context) {
  const Rounding rounding = RoundingFinder(job).Run();
  Sensitivities sensitivities;
  if (rounding.layers.empty()) return sensitivities;
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          quantizer::WithRoundingSwitches(job.from.module, rounding.layers));
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create(job.folder));
  const std::filesystem::path library = folder.path() / "rounded.so";
  codegen::CompileOptions build;
  build.passes = job.from.passes;
  QUENCH_RETURN_IF_ERROR(
      codegen::Compile(graph, build, library, folder.path() / "rounded.h", context).status());
  quantizer::SelectOptions options = job.select;
  // Outputs of integers have no noise, but drop.
  if (!options.budget.max_drop)
    options.budget = {std::nullopt, std::numeric_limits<double>::lowest()};
  options.always_sensitivity = options.may_keep_all = true;
  QUENCH_ASSIGN_OR_RETURN(const quantizer::Selection selection,
                          quantizer::Select(graph, library, job.samples, options, context));
  for (const quantizer::LayerSensitivity& layer : selection.layers) {
    for (size_t k = 0; k < rounding.layers.size(); ++k) {
      if (rounding.layers[k].name == layer.node)
        sensitivities[rounding.places[k]] = layer.alone.sqnr_db;
    }
  }
  return sensitivities;
}

}  // namespace quench::cli
