#include "services/quantizer/selection_file.h"

#include "common/base/status.h"
#include "services/quantizer/message_file.h"

namespace quench::quantizer {
namespace {

constexpr std::string_view kSelectionMagic = "QUENCHSELECTION1\n";

void Fill(const Cost& cost, v1::Cost& message) {
  message.set_sqnr_db(cost.sqnr_db);
  if (cost.drop) message.set_drop(*cost.drop);
}

Cost CostOf(const v1::Cost& message) {
  Cost cost{message.sqnr_db(), std::nullopt};
  if (message.has_drop()) cost.drop = message.drop();
  return cost;
}

}  // namespace

v1::Selection ToProto(const Selection& selection) {
  v1::Selection message;
  message.set_fingerprint(selection.fingerprint);
  for (const LayerSensitivity& layer : selection.layers) {
    v1::LayerSensitivity& added = *message.add_layers();
    added.set_node(layer.node);
    Fill(layer.alone, *added.mutable_alone());
    added.set_kept(layer.kept);
  }
  for (const Trial& trial : selection.trials) {
    v1::Trial& added = *message.add_trials();
    added.set_kept(trial.kept);
    Fill(trial.cost, *added.mutable_cost());
  }
  message.set_samples(selection.samples);
  message.set_sensitivity_samples(selection.sensitivity_samples);
  Fill(selection.cost, *message.mutable_cost());
  return message;
}

Selection FromProto(const v1::Selection& message) {
  Selection selection;
  selection.fingerprint = message.fingerprint();
  for (const v1::LayerSensitivity& layer : message.layers())
    selection.layers.push_back({layer.node(), CostOf(layer.alone()), layer.kept()});
  for (const v1::Trial& trial : message.trials())
    selection.trials.push_back({trial.kept(), CostOf(trial.cost())});
  selection.samples = message.samples();
  selection.sensitivity_samples = message.sensitivity_samples();
  selection.cost = CostOf(message.cost());
  return selection;
}

std::string SelectionBytes(const Selection& selection) {
  return std::string(kSelectionMagic) + ToProto(selection).SerializeAsString();
}

absl::StatusOr<Selection> ReadSelection(const std::filesystem::path& path) {
  v1::Selection message;
  QUENCH_RETURN_IF_ERROR(ReadMessageFile(path, kSelectionMagic, "selection of layers", message));
  return FromProto(message);
}

}  // namespace quench::quantizer
