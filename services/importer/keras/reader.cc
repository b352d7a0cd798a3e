#include "services/importer/keras/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "common/base/status.h"
#include "services/importer/graph/interface.h"
#include "services/importer/graph/names.h"
#include "services/importer/keras/attributes.h"
#include "services/importer/keras/convert.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNodes = 250'000;
constexpr size_t kPiece = 1 << 20;
constexpr int kMaxOutputs = 64;  // of a layer

// Layers that give elements of the sequence in its order, so that its mask holds behind them.
const std::set<std::string_view>& CarriesMask() {
  static const std::set<std::string_view> kNames = {"Activation",
                                                    "ActivityRegularization",
                                                    "Add",
                                                    "AlphaDropout",
                                                    "Average",
                                                    "BatchNormalization",
                                                    "Concatenate",
                                                    "Dense",
                                                    "Dropout",
                                                    "ELU",
                                                    "EinsumDense",
                                                    "GaussianDropout",
                                                    "GaussianNoise",
                                                    "Identity",
                                                    "LayerNormalization",
                                                    "LeakyReLU",
                                                    "Maximum",
                                                    "Minimum",
                                                    "Multiply",
                                                    "PReLU",
                                                    "RMSNormalization",
                                                    "ReLU",
                                                    "SpatialDropout1D",
                                                    "Subtract",
                                                    "ThresholdedReLU",
                                                    "UnitNormalization"};
  return kNames;
}

bool TakesMask(std::string_view name) {
  return name == "LSTM" || name == "GRU" || name == "SimpleRNN" || name == "GlobalAveragePooling1D";
}

bool RefusesMask(std::string_view name) {
  return name == "MultiHeadAttention" || name == "GroupQueryAttention" ||
         name == "GroupedQueryAttention" || name == "Attention" || name == "AdditiveAttention" ||
         name == "Softmax" || name == "ConvLSTM1D" || name == "ConvLSTM2D" || name == "ConvLSTM3D";
}

bool IsSet(const KerasLayer& layer, const char* key) {
  const auto found = layer.config.find(key);
  return found != layer.config.end() && found->is_boolean() && found->get<bool>();
}

// By Keras 3's `quantize`: the policy of its dtype says so.
bool IsQuantized(const KerasLayer& layer) {
  const auto dtype = layer.config.find("dtype");
  if (dtype == layer.config.end() || !dtype->is_object()) return false;
  const auto name = dtype->find("class_name");
  return name != dtype->end() && name->is_string() &&
         name->get<std::string>().find("Quantized") != std::string::npos;
}

std::string TextIn(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || !found->is_string() ? "" : found->get<std::string>();
}

std::optional<DataType> TypeCalled(const std::string& name) {
  static const std::map<std::string, DataType> kTypes = {
      {"float16", DataType::kF16}, {"bfloat16", DataType::kBF16}, {"float32", DataType::kF32},
      {"float64", DataType::kF64}, {"int8", DataType::kI8},       {"int16", DataType::kI16},
      {"int32", DataType::kI32},   {"int64", DataType::kI64},     {"uint8", DataType::kU8},
      {"uint16", DataType::kU16},  {"uint32", DataType::kU32},    {"uint64", DataType::kU64},
      {"bool", DataType::kBool}};
  const auto found = kTypes.find(name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

// A layer's type, or its policy's.
absl::StatusOr<DataType> InputType(const Json& config) {
  std::string name = TextIn(config, "dtype");
  if (config.contains("dtype") && config["dtype"].is_object() &&
      config["dtype"].contains("config") && config["dtype"]["config"].is_object())
    name = TextIn(config["dtype"]["config"], "name");
  if (name.empty() || name.starts_with("mixed_")) name = "float32";
  const std::optional<DataType> type = TypeCalled(name);
  if (!type) return Unsupported("is of type `{}`", name);
  return *type;
}

// Names and places of the values of one call of a model.
struct KerasScope {
  const KerasModel* model = nullptr;
  std::string prefix;
  std::map<std::pair<int, int>, std::vector<ValueId>> values;  // (layer, call) -> outputs
};

class KerasReader {
 public:
  KerasReader(const KerasFile& file, const ImportOptions& options, WeightWriter* weights,
              const StepContext& context)
      : file_(file), options_(options), weights_(weights), context_(context) {}

  absl::StatusOr<Graph> Read();

 private:
  using Values = std::vector<ValueId>;

  absl::Status AddWeights(const LayerWeights& weights);
  absl::StatusOr<Values> ReadInputs();
  Values ReadModel(const KerasModel& model, const Values& inputs, const std::string& prefix);
  Values ReadCall(const KerasLayer& layer, const KerasCall* call, const Values& inputs,
                  const std::string& name, int outputs);
  Values ReadMasked(const KerasLayer& layer, const KerasCall& call, Values inputs,
                    const std::string& name, int outputs);
  Values ReadSteps(const KerasLayer& layer, const Values& inputs, const std::string& name,
                   int outputs);
  Values ReadDirections(const KerasLayer& layer, const Values& inputs, const std::string& name,
                        int outputs);
  Values AddNode(const std::string& domain, const std::string& op, const std::string& name,
                 Values inputs, int outputs, std::map<std::string, Attribute> attributes);
  ValueId MaskFor(const KerasLayer& layer, const Values& inputs, const std::string& name);
  void PassMask(const KerasLayer& layer, ValueId mask, const Values& outputs);
  void AddOutputs(const Values& outputs);
  absl::Status CutAt(const std::vector<std::string>& names);

  const KerasFile& file_;
  const ImportOptions& options_;
  WeightWriter* const weights_;
  const StepContext& context_;
  StatusCollector problems_;
  Graph graph_;
  NameSet value_names_, node_names_;
  std::map<const KerasLayer*, std::vector<std::pair<std::string, ValueId>>> constants_;
  std::map<std::string, std::shared_ptr<const Constant>> frozen_;
  std::map<ValueId, ValueId> masks_;
  std::set<const KerasLayer*> channels_first_;
};

// ---- Weights ----

absl::Status KerasReader::AddWeights(const LayerWeights& weights) {
  std::map<const KerasLayer*, std::vector<std::shared_ptr<const Constant>>> added;
  for (const auto& [layer, list] : weights) {
    for (const LayerWeight& weight : list) {
      const std::span<const std::byte> bytes = weight.data->bytes;
      const TensorHeader& header = weight.data->header;
      if (header.bytes >= kBlobTensorBytes) {
        QUENCH_ASSIGN_OR_RETURN(
            std::shared_ptr<const Constant> constant,
            weights_->AddLarge(weight.path, header, [&](const ByteSink& sink) -> absl::Status {
              for (size_t at = 0; at < bytes.size(); at += kPiece)
                QUENCH_RETURN_IF_ERROR(
                    sink(bytes.subspan(at, std::min(kPiece, bytes.size() - at))));
              return absl::OkStatus();
            }));
        added[layer].push_back(std::move(constant));
      } else {
        Tensor tensor = Tensor::Zeros(header.dtype, header.dims);
        std::copy(bytes.begin(), bytes.end(), tensor.mutable_bytes());
        QUENCH_ASSIGN_OR_RETURN(std::shared_ptr<const Constant> constant,
                                weights_->Add(weight.path, tensor));
        added[layer].push_back(std::move(constant));
      }
    }
  }
  for (const auto& [name, tensor] : options_.freeze_params) {
    QUENCH_ASSIGN_OR_RETURN(frozen_[name], weights_->Add(name, tensor));
  }
  QUENCH_RETURN_IF_ERROR(weights_->Finish());
  for (const auto& [layer, list] : weights) {
    for (size_t i = 0; i < list.size(); ++i)
      constants_[layer].emplace_back(
          list[i].role, PushConstant(graph_, value_names_.Take(layer->name + "/" + list[i].role),
                                     added[layer][i]));
  }
  return absl::OkStatus();
}

// ---- Inputs ----

absl::StatusOr<std::vector<ValueId>> KerasReader::ReadInputs() {
  std::vector<DeclaredInput> declared;
  std::set<std::string> names;
  Values values(file_.model.inputs.size(), kNone);
  std::vector<size_t> places;
  for (size_t i = 0; i < file_.model.inputs.size(); ++i) {
    const KerasLayer& layer = file_.model.layers[static_cast<size_t>(file_.model.inputs[i].layer)];
    names.insert(layer.name);
    const auto constant = frozen_.find(layer.name);
    if (constant != frozen_.end()) {
      values[i] = PushConstant(graph_, value_names_.Take(layer.name), constant->second);
      continue;
    }
    DeclaredInput input;
    input.name = layer.name;
    const absl::StatusOr<DataType> dtype = InputType(layer.config);
    if (dtype.ok()) {
      input.type = Type{ValueKind::kTensor, *dtype, false, {}, {}};
    } else {
      input.type = dtype.status();
    }
    for (const char* key : {"batch_shape", "batch_input_shape"}) {
      const auto shape = layer.config.find(key);
      if (shape == layer.config.end() || !shape->is_array()) continue;
      std::vector<DeclaredDim> dims;
      for (const Json& dim : *shape) {
        const bool known = dim.is_number_integer() && dim.get<int64_t>() >= 0;
        dims.push_back({known ? dim.get<int64_t>() : -1,
                        !known && dims.empty() ? std::string("batch") : std::string()});
      }
      input.dims = std::move(dims);
      break;
    }
    declared.push_back(std::move(input));
    places.push_back(i);
  }
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<GraphInput> inputs,
      ResolveInputs(std::move(declared), names, true, options_, *graph_.symbols));
  for (size_t i = 0; i < inputs.size(); ++i)
    values[places[i]] = PushInput(graph_, value_names_, node_names_, inputs[i]);
  return values;
}

// ---- Nodes ----

std::vector<ValueId> KerasReader::AddNode(const std::string& domain, const std::string& op,
                                          const std::string& name, Values inputs, int outputs,
                                          std::map<std::string, Attribute> attributes) {
  if (graph_.nodes.size() >= kMaxNodes) {
    if (graph_.nodes.size() == kMaxNodes)
      problems_.Add(absl::ResourceExhaustedError(
          fmt::format("the model has more than {} layers with those of its models", kMaxNodes)));
    return Values(static_cast<size_t>(outputs), kNone);
  }
  Node node;
  node.name = node_names_.Take(name);
  node.op = op;
  node.domain = domain;
  node.version = file_.version;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  for (int i = 0; i < outputs; ++i)
    node.outputs.push_back(
        PushValue(graph_, value_names_.Take(i == 0 ? name : fmt::format("{}.{}", name, i))));
  Values values = node.outputs;
  PushNode(graph_, std::move(node));
  return values;
}

// The mask that the layer's inputs have, kNone for none.
ValueId KerasReader::MaskFor(const KerasLayer& layer, const Values& inputs,
                             const std::string& name) {
  std::set<ValueId> found;
  for (const ValueId input : inputs) {
    if (masks_.contains(input)) found.insert(masks_[input]);
  }
  if (found.empty()) return kNone;
  const bool used = TakesMask(layer.class_name) || CarriesMask().contains(layer.class_name);
  if (RefusesMask(layer.class_name) || (used && found.size() > 1)) {
    problems_.Add(Unsupported(
        "layer `{}` ({}): it takes {} (of `Masking`, or of an `Embedding` with "
        "`mask_zero`)",
        name, layer.class_name, found.size() > 1 ? "sequences with several masks" : "a mask"));
    return kNone;
  }
  return used ? *found.begin() : kNone;
}

void KerasReader::PassMask(const KerasLayer& layer, ValueId mask, const Values& outputs) {
  if (outputs.empty()) return;
  const std::string& name = layer.class_name;
  const bool makes = name == "Masking" || (name == "Embedding" && IsSet(layer, "mask_zero"));
  if (makes && outputs.size() > 1) {
    masks_[outputs[0]] = outputs[1];
  } else if (mask != kNone &&
             (CarriesMask().contains(name) ||
              (name != "GlobalAveragePooling1D" && IsSet(layer, "return_sequences")))) {
    masks_[outputs[0]] = mask;
  }
}

// TimeDistributed: steps beside the batch, and back.
std::vector<ValueId> KerasReader::ReadSteps(const KerasLayer& layer, const Values& inputs,
                                            const std::string& name, int outputs) {
  if (inputs.size() != 1 || outputs > 1) {
    problems_.Add(Unsupported("layer `{}` (TimeDistributed): {} inputs and {} outputs", name,
                              inputs.size(), outputs));
    return Values(static_cast<size_t>(outputs), kNone);
  }
  const Values folded = AddNode("keras.inner", "FoldSteps", name + "/steps", inputs, 1, {});
  const KerasLayer& inner = layer.inner[0];
  Values done = ReadCall(inner, nullptr, folded, name + "/" + inner.name, 1);
  if (done.empty()) return done;
  Values result = AddNode("keras.inner", "UnfoldSteps", name, {done[0], inputs[0]}, 1, {});
  if (masks_.contains(inputs[0])) masks_[result[0]] = masks_[inputs[0]];
  return result;
}

std::vector<ValueId> KerasReader::ReadDirections(const KerasLayer& layer, const Values& inputs,
                                                 const std::string& name, int outputs) {
  if (inputs.size() % 2 == 0) {
    problems_.Add(
        Unsupported("layer `{}` (Bidirectional): {} inputs; it takes one, and as many states for "
                    "each direction",
                    name, inputs.size()));
    return Values(static_cast<size_t>(outputs), kNone);
  }
  const bool states = IsSet(layer.inner[0], "return_state");
  const int each = !states ? 1 : (layer.inner[0].class_name == "LSTM" ? 3 : 2);
  std::vector<Values> results;
  for (size_t i = 0; i < 2; ++i) {
    Values given = {inputs[0]};
    const size_t half = (inputs.size() - 1) / 2;
    for (size_t k = 0; k < half; ++k) given.push_back(inputs[1 + i * half + k]);
    results.push_back(
        ReadCall(layer.inner[i], nullptr, given, name + "/" + layer.inner[i].name, each));
    if (static_cast<int>(results.back().size()) != each) return {};
  }
  std::map<std::string, Attribute> attributes;
  const std::string mode = TextIn(layer.config, "merge_mode");
  if (!mode.empty()) attributes["merge_mode"] = mode;
  attributes["return_sequences"] = int64_t{IsSet(layer.inner[0], "return_sequences")};
  Values merged = AddNode("keras.inner", "MergeDirections", name, {results[0][0], results[1][0]},
                          mode.empty() ? 2 : 1, std::move(attributes));
  for (const Values& result : results)
    merged.insert(merged.end(), result.begin() + 1, result.end());
  if (masks_.contains(inputs[0]) && IsSet(layer.inner[0], "return_sequences"))
    masks_[merged[0]] = masks_[inputs[0]];
  merged.resize(static_cast<size_t>(outputs), kNone);
  return merged;
}

// Keras 3 gives masks as an argument.
std::vector<ValueId> KerasReader::ReadMasked(const KerasLayer& layer, const KerasCall& call,
                                             Values inputs, const std::string& name, int outputs) {
  const Json& mask = call.kwargs["mask"];
  if (!mask.is_object() || !mask.contains(kTensorKey) || inputs.size() < 2 ||
      mask[kTensorKey] != inputs.size() - 1) {
    problems_.Add(Unsupported("layer `{}` ({}): its argument `mask` is not the last tensor", name,
                              layer.class_name));
    return Values(static_cast<size_t>(outputs), kNone);
  }
  const ValueId id = inputs.back();
  inputs.pop_back();
  masks_[inputs[0]] = id;
  KerasCall plain = call;
  plain.kwargs.erase("mask");
  return ReadCall(layer, &plain, inputs, name, outputs);
}

std::vector<ValueId> KerasReader::ReadCall(const KerasLayer& layer, const KerasCall* call,
                                           const Values& inputs, const std::string& name,
                                           int outputs) {
  if (call != nullptr && call->kwargs.contains("mask") && !call->kwargs["mask"].is_null())
    return ReadMasked(layer, *call, inputs, name, outputs);
  if (layer.model != nullptr) return ReadModel(*layer.model, inputs, name + "/");
  if (layer.inner.size() == 1) return ReadSteps(layer, inputs, name, outputs);
  if (layer.inner.size() == 2) return ReadDirections(layer, inputs, name, outputs);
  if (IsQuantized(layer)) {
    problems_.Add(
        Unsupported("layer `{}` ({}): its weights are quantized by Keras", name, layer.class_name));
    return {};
  }
  Values all = inputs;
  const bool function = layer.domain != "keras";
  std::map<std::string, Attribute> attributes;
  if (!function) attributes = AttributesOf(layer.config);
  const ValueId mask = MaskFor(layer, inputs, name);
  if (TakesMask(layer.class_name) && mask != kNone) {
    attributes[kMaskedAttribute] = int64_t{1};
    all.push_back(mask);
  }
  if (call != nullptr && (function || !call->kwargs.empty())) {
    Json json = {{"args", call->args}, {"kwargs", call->kwargs}};
    if (function) json["config"] = layer.config;
    attributes[kCallAttribute] = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const auto weights = constants_.find(&layer);
  if (weights != constants_.end()) {
    std::vector<std::string> roles;
    for (const auto& [role, id] : weights->second) {
      roles.push_back(role);
      all.push_back(id);
    }
    attributes[kRolesAttribute] = std::move(roles);
  }
  const bool masks = layer.class_name == "Masking" ||
                     (layer.class_name == "Embedding" && IsSet(layer, "mask_zero"));
  Values made = AddNode(layer.domain, layer.class_name, name, std::move(all),
                        masks ? std::max(outputs, 2) : outputs, std::move(attributes));
  if (layer.domain == "keras") PassMask(layer, mask, made);
  made.resize(static_cast<size_t>(outputs));
  return made;
}

// ---- Models ----

std::vector<ValueId> KerasReader::ReadModel(const KerasModel& model, const Values& inputs,
                                            const std::string& prefix) {
  if (inputs.size() != model.inputs.size()) {
    problems_.Add(InvalidArgument("model `{}` has {} inputs, it is called with {}", model.name,
                                  model.inputs.size(), inputs.size()));
    return {};
  }
  KerasScope scope{&model, prefix, {}};
  for (size_t i = 0; i < inputs.size(); ++i)
    scope.values[{model.inputs[i].layer, model.inputs[i].call}] = {inputs[i]};
  // Calls wait for the calls that they take something of.
  std::map<std::pair<int, int>, std::vector<std::pair<int, int>>> users;
  std::map<std::pair<int, int>, size_t> waits;
  std::map<std::pair<int, int>, int> outputs;
  std::vector<std::pair<int, int>> ready;
  const auto note = [&](const TensorRef& ref) {
    int& count = outputs[{ref.layer, ref.call}];
    count = std::max(count, std::min(ref.output, kMaxOutputs) + 1);
  };
  for (const TensorRef& ref : model.outputs) note(ref);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    for (size_t k = 0; k < model.layers[i].calls.size(); ++k) {
      const std::pair<int, int> at{static_cast<int>(i), static_cast<int>(k)};
      std::set<std::pair<int, int>> needs;
      for (const TensorRef& ref : model.layers[i].calls[k].tensors) {
        note(ref);
        if (!scope.values.contains({ref.layer, ref.call})) needs.insert({ref.layer, ref.call});
      }
      waits[at] = needs.size();
      for (const auto& need : needs) users[need].push_back(at);
      if (needs.empty()) ready.push_back(at);
    }
  }
  const size_t calls = waits.size();
  size_t done = 0;
  for (size_t next = 0; next < ready.size() && problems_.ok(); ++next, ++done) {
    const auto at = ready[next];
    const KerasLayer& layer = model.layers[static_cast<size_t>(at.first)];
    const KerasCall& call = layer.calls[static_cast<size_t>(at.second)];
    Values given;
    for (const TensorRef& ref : call.tensors) {
      const Values& from = scope.values[{ref.layer, ref.call}];
      given.push_back(static_cast<size_t>(ref.output) < from.size()
                          ? from[static_cast<size_t>(ref.output)]
                          : kNone);
      if (given.back() == kNone)
        problems_.Add(InvalidArgument(
            "layer `{}{}` takes output {} of layer `{}`, which has {}", prefix, layer.name,
            ref.output, model.layers[static_cast<size_t>(ref.layer)].name, from.size()));
    }
    if (!problems_.ok()) break;
    std::string name = prefix + layer.name;
    if (at.second > 0) name += fmt::format(":{}", at.second);
    scope.values[at] = ReadCall(layer, &call, given, name, std::max(outputs[at], 1));
    for (const auto& user : users[at]) {
      if (--waits[user] == 0) ready.push_back(user);
    }
  }
  if (problems_.ok() && done < calls) {
    std::vector<std::string> stuck;
    for (const auto& [at, count] : waits) {
      if (count > 0 && stuck.size() < 5)
        stuck.push_back(model.layers[static_cast<size_t>(at.first)].name);
    }
    problems_.Add(
        InvalidArgument("model `{}`: layers wait for one another, or for inputs that it "
                        "does not list: `{}`",
                        model.name, fmt::join(stuck, "`, `")));
  }
  Values results;
  for (const TensorRef& ref : model.outputs) {
    const Values& from = scope.values[{ref.layer, ref.call}];
    results.push_back(static_cast<size_t>(ref.output) < from.size()
                          ? from[static_cast<size_t>(ref.output)]
                          : kNone);
  }
  return results;
}

// ---- The whole ----

// An output is called as its layer, and is not an input, constant or other output.
void KerasReader::AddOutputs(const Values& outputs) {
  std::set<ValueId> taken(graph_.inputs.begin(), graph_.inputs.end());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorRef& ref = file_.model.outputs[i];
    const std::string& layer = file_.model.layers[static_cast<size_t>(ref.layer)].name;
    ValueId id = outputs[i];
    if (id == kNone) {
      problems_.Add(InvalidArgument("layer `{}` has no output {}", layer, ref.output));
      continue;
    }
    if (graph_.value(id).producer == kNone || !taken.insert(id).second)
      id = AddNode("", "Identity", layer + "/output", {id}, 1, {})[0];
    if (graph_.value(id).name != layer && !value_names_.Contains(layer))
      graph_.value(id).name = value_names_.Take(layer);
    graph_.outputs.push_back(id);
  }
}

absl::Status KerasReader::CutAt(const std::vector<std::string>& names) {
  Values cut;
  StatusCollector problems;
  for (const std::string& name : names) {
    const std::optional<ValueId> id = graph_.FindValue(name);
    if (id && graph_.value(*id).constant == nullptr) {
      cut.push_back(*id);
    } else {
      problems.Add(
          InvalidArgument("the model is cut at `{}`, which is not an output of its layers", name));
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  graph_.outputs = std::move(cut);
  graph_.Compact();
  return absl::OkStatus();
}

absl::StatusOr<Graph> KerasReader::Read() {
  graph_.name = file_.model.name.empty() ? "main" : file_.model.name;
  graph_.stage = Stage::kImported;
  graph_.metadata["producer"] = file_.written_by.empty() ? "Keras" : "Keras " + file_.written_by;
  if (weights_ != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(const LayerWeights weights, WeightsOf(file_));
    QUENCH_RETURN_IF_ERROR(AddWeights(weights));
  }
  QUENCH_RETURN_IF_ERROR(context_.Check());
  QUENCH_ASSIGN_OR_RETURN(const Values inputs, ReadInputs());
  const Values outputs = ReadModel(file_.model, inputs, "");
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  AddOutputs(outputs);
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  if (!options_.outputs.empty()) QUENCH_RETURN_IF_ERROR(CutAt(options_.outputs));
  return std::move(graph_);
}

}  // namespace

absl::StatusOr<Graph> ReadKerasGraph(const KerasFile& file, const ImportOptions& options,
                                     WeightWriter* weights, const StepContext& context) {
  return KerasReader(file, options, weights, context).Read();
}

}  // namespace quench::importer
