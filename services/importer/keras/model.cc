#include "services/importer/keras/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/keras/convert.h"
#include "services/importer/keras/old_config.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr int kMaxJsonDepth = 100;
constexpr int kMaxModelDepth = 20;  // models within models
constexpr size_t kMaxLayers = 100'000;

// Parsers are iterative, what walks their result is not.
bool IsTooDeep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

std::string TextOf(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

bool IsModelClass(const std::string& name) {
  return name == "Sequential" || name == "Functional" || name == "Model";
}

// Functions are called by name in TensorFlow, and have classes of their own in Keras 3.
std::string DomainOf(const Json& entry, const std::string& class_name) {
  if (class_name == "TFOpLambda" || class_name == "SlicingOpLambda" ||
      class_name == "TensorFlowOpLayer")
    return "keras.tf";
  const std::string module = TextOf(entry, "module");
  // In .h5 files Keras 3 leaves the module out; layers say there whether they are trained.
  const auto config = entry.find("config");
  if (module.empty() && config != entry.end() && config->is_object() &&
      !config->contains("trainable") && entry.contains("inbound_nodes") &&
      entry["inbound_nodes"].is_array() && !entry["inbound_nodes"].empty() &&
      entry["inbound_nodes"][0].is_object() && FindKerasRow("keras.ops", class_name) != nullptr)
    return "keras.ops";
  return module.find(".ops") != std::string::npos ? "keras.ops" : "keras";
}

// Whatever a package registers has its package's name.
std::string ClassNameOf(const Json& entry) {
  const std::string registered = TextOf(entry, "registered_name");
  const size_t package = registered.find('>');
  if (package != std::string::npos && !registered.starts_with("keras"))
    return Printable(registered);
  const std::string name = Printable(TextOf(entry, "class_name"));
  return name.empty() ? "unnamed" : name;
}

class ModelParser {
 public:
  explicit ModelParser(int version) : version_(version) {}

  absl::StatusOr<std::shared_ptr<const KerasModel>> Parse(const Json& entry, int depth) {
    std::shared_ptr<KerasModel> model = std::make_shared<KerasModel>();
    const auto config = entry.find("config");
    if (config == entry.end() || (!config->is_object() && !config->is_array()))
      return InvalidArgument("the model's configuration has no `config`");
    model->name = Printable(TextOf(*config, "name"));
    const Json* layers = &*config;
    if (config->is_object()) {
      const auto found = config->find("layers");
      if (found == config->end() || !found->is_array())
        return InvalidArgument("model `{}` ({}) has no list of layers", model->name,
                               ClassNameOf(entry));
      layers = &*found;
    }
    model->sequential = TextOf(entry, "class_name") == "Sequential";
    if (depth > kMaxModelDepth)
      return InvalidArgument("models and layers are nested deeper than {}", kMaxModelDepth);
    layers_ += std::min(layers->size(), kMaxLayers + 1);
    if (layers_ > kMaxLayers)
      return absl::ResourceExhaustedError(
          fmt::format("the model has more than {} layers", kMaxLayers));
    for (const Json& layer : *layers) problems_.Add(AddLayer(layer, depth, *model));
    QUENCH_RETURN_IF_ERROR(problems_.Finish());
    if (model->sequential) {
      Chain(*config, *model);
    } else {
      Connect(*layers, *config, *model);
    }
    QUENCH_RETURN_IF_ERROR(problems_.Finish());
    return std::shared_ptr<const KerasModel>(std::move(model));
  }

 private:
  absl::Status AddLayer(const Json& entry, int depth, KerasModel& model) {
    QUENCH_ASSIGN_OR_RETURN(KerasLayer layer, LayerOf(entry, depth));
    if (layer.name.empty()) layer.name = fmt::format("layer_{}", model.layers.size());
    model.layers.push_back(std::move(layer));
    return absl::OkStatus();
  }

  absl::StatusOr<KerasLayer> LayerOf(const Json& entry, int depth) {
    if (!entry.is_object()) return InvalidArgument("a layer is not a JSON object");
    if (depth > kMaxModelDepth)
      return InvalidArgument("models and layers are nested deeper than {}", kMaxModelDepth);
    KerasLayer layer;
    layer.class_name = ClassNameOf(entry);
    layer.domain = DomainOf(entry, layer.class_name);
    const auto config = entry.find("config");
    if (config != entry.end() && config->is_object()) layer.config = *config;
    layer.name = Printable(TextOf(entry, "name"));
    if (layer.name.empty()) layer.name = Printable(TextOf(layer.config, "name"));
    if (version_ < 2) RenameOldConfig(layer.class_name, layer.config);
    if (layer.domain == "keras.tf") layer.class_name = FunctionOf(layer);
    if (layer.domain != "keras") return layer;
    if (IsModelClass(layer.class_name)) {
      QUENCH_ASSIGN_OR_RETURN(layer.model, Parse(entry, depth + 1));
    } else if (layer.class_name == "TimeDistributed") {
      QUENCH_ASSIGN_OR_RETURN(KerasLayer inner, InnerLayer(layer, "layer", depth));
      layer.inner.push_back(std::move(inner));
    } else if (layer.class_name == "Bidirectional") {
      QUENCH_RETURN_IF_ERROR(AddDirections(layer, depth));
    } else if (layer.class_name == "RNN") {
      QUENCH_RETURN_IF_ERROR(TakeCell(layer, depth));
    }
    return layer;
  }

  absl::StatusOr<KerasLayer> InnerLayer(const KerasLayer& layer, const char* key, int depth) {
    const auto found = layer.config.find(key);
    if (found == layer.config.end() || !found->is_object())
      return InvalidArgument("layer `{}` ({}) has no `{}` in its configuration", layer.name,
                             layer.class_name, key);
    QUENCH_ASSIGN_OR_RETURN(KerasLayer inner, LayerOf(*found, depth + 1));
    if (inner.name.empty()) inner.name = key;
    return inner;
  }

  // The layer backwards is the one forwards, turned round, where it has no configuration of its own.
  absl::Status AddDirections(KerasLayer& layer, int depth) {
    QUENCH_ASSIGN_OR_RETURN(KerasLayer forward, InnerLayer(layer, "layer", depth));
    KerasLayer backward = forward;
    if (layer.config.contains("backward_layer") && layer.config["backward_layer"].is_object()) {
      QUENCH_ASSIGN_OR_RETURN(backward, InnerLayer(layer, "backward_layer", depth));
    } else {
      const auto turned = forward.config.find("go_backwards");
      backward.config["go_backwards"] =
          turned == forward.config.end() || !turned->is_boolean() || !turned->get<bool>();
      backward.name = "backward_" + forward.name;
      forward.name = "forward_" + forward.name;
    }
    layer.inner = {std::move(forward), std::move(backward)};
    return absl::OkStatus();
  }

  // RNN(LSTMCell) is LSTM, told by both.
  absl::Status TakeCell(KerasLayer& layer, int depth) {
    const auto cell = layer.config.find("cell");
    if (cell == layer.config.end() || !cell->is_object()) return absl::OkStatus();
    QUENCH_ASSIGN_OR_RETURN(const KerasLayer inner, InnerLayer(layer, "cell", depth));
    const std::string& name = inner.class_name;
    if (name != "LSTMCell" && name != "GRUCell" && name != "SimpleRNNCell") return absl::OkStatus();
    layer.written_as = layer.class_name;
    layer.class_name = name.substr(0, name.size() - 4);
    Json config = inner.config;
    for (const auto& [key, value] : layer.config.items()) {
      if (key != "cell") config[key] = value;
    }
    layer.config = std::move(config);
    return absl::OkStatus();
  }

  static std::string FunctionOf(const KerasLayer& layer) {
    const std::string function = TextOf(layer.config, "function");
    return function.empty() ? layer.class_name : Printable(function);
  }

  // The layers of a Sequential model, one after another.
  void Chain(const Json& config, KerasModel& model) {
    const bool has_input = !model.layers.empty() && model.layers[0].class_name == "InputLayer";
    if (model.layers.empty()) {
      problems_.Add(InvalidArgument("model `{}` has no layers", model.name));
      return;
    }
    if (!has_input) {
      KerasLayer input;
      input.class_name = "InputLayer";
      input.domain = "keras";
      input.name = model.layers[0].name + "_input";
      for (const Json* from : {&std::as_const(model.layers[0].config), &config}) {
        for (const char* key : {"batch_input_shape", "batch_shape", "build_input_shape"}) {
          if (from->is_object() && from->contains(key) && !input.config.contains("batch_shape"))
            input.config["batch_shape"] = (*from)[key];
        }
      }
      // A model as the first layer knows what it takes.
      if (model.layers[0].model != nullptr && model.layers[0].model->inputs.size() == 1) {
        const KerasModel& inner = *model.layers[0].model;
        input.config = inner.layers[static_cast<size_t>(inner.inputs[0].layer)].config;
      }
      const std::string dtype = TextOf(model.layers[0].config, "dtype");
      if (!dtype.empty() && !input.config.contains("dtype")) input.config["dtype"] = dtype;
      if (model.layers[0].class_name == "Embedding" && !input.config.contains("dtype"))
        input.config["dtype"] = "float32";
      model.layers.insert(model.layers.begin(), std::move(input));
    }
    model.inputs = {{0, 0, 0}};
    for (size_t i = 1; i < model.layers.size(); ++i) {
      KerasCall call;
      call.tensors = {{static_cast<int>(i - 1), 0, 0}};
      call.args.push_back({{kTensorKey, 0}});
      model.layers[i].calls.push_back(std::move(call));
    }
    model.outputs = {{static_cast<int>(model.layers.size()) - 1, 0, 0}};
  }

  // ---- Functional models ----

  struct Names {
    std::map<std::string, int> layers;
    std::vector<int> first_call;  // of each layer: how its calls are counted
  };

  // [name, call, output] or {"class_name": "__keras_tensor__", "config": {"keras_history": [...]}}.
  static std::optional<std::pair<std::string, TensorRef>> AsTensor(const Json& json,
                                                                   const Names& names) {
    const Json* triple = &json;
    if (json.is_object()) {
      if (TextOf(json, "class_name") != "__keras_tensor__" || !json.contains("config"))
        return std::nullopt;
      const Json& config = json["config"];
      if (!config.is_object() || !config.contains("keras_history")) return std::nullopt;
      triple = &config["keras_history"];
    }
    if (!triple->is_array() || triple->size() < 3 || !(*triple)[0].is_string() ||
        !(*triple)[1].is_number_integer() || !(*triple)[2].is_number_integer())
      return std::nullopt;
    const std::string name = Printable((*triple)[0].get<std::string>());
    if (triple == &json && !names.layers.contains(name)) return std::nullopt;
    TensorRef ref;
    const auto found = names.layers.find(name);
    ref.layer = found == names.layers.end() ? -1 : found->second;
    const auto number = [&](size_t i) {
      return static_cast<int>(std::clamp<int64_t>((*triple)[i].get<int64_t>(), -1, 1 << 30));
    };
    ref.call = number(1);
    ref.output = number(2);
    return std::pair{name, ref};
  }

  // The arguments with numbers in place of tensors.
  Json Substitute(const Json& json, const Names& names, KerasCall& call) {
    if (const auto tensor = AsTensor(json, names)) {
      if (tensor->second.layer < 0) unknown_.insert(tensor->first);
      call.tensors.push_back(tensor->second);
      return {{kTensorKey, call.tensors.size() - 1}};
    }
    if (!json.is_structured()) return json;
    Json copy = json.is_array() ? Json::array() : Json::object();
    for (const auto& [key, value] : json.items()) {
      if (json.is_array()) {
        copy.push_back(Substitute(value, names, call));
      } else {
        copy[key] = Substitute(value, names, call);
      }
    }
    return copy;
  }

  // A node of Keras 2: one tensor with the arguments of the call behind it, or a list of those.
  void ReadNode2(const Json& node, const Names& names, KerasCall& call) {
    const auto is_entry = [](const Json& json) {
      return json.is_array() && json.size() >= 3 && json[0].is_string();
    };
    const auto read_entry = [&](const Json& entry) -> Json {
      if (entry.size() > 3 && entry[3].is_object()) {
        for (const auto& [key, value] : entry[3].items()) call.kwargs[key] = value;
      }
      if (entry[0] == "_CONSTANT_VALUE") return entry[2];
      return Substitute(entry, names, call);
    };
    if (is_entry(node)) {
      call.args.push_back(read_entry(node));
    } else if (node.is_array() && node.size() == 1 && is_entry(node[0])) {
      call.args.push_back(read_entry(node[0]));
    } else if (node.is_array()) {
      Json list = Json::array();
      for (const Json& entry : node)
        list.push_back(is_entry(entry) ? read_entry(entry) : Substitute(entry, names, call));
      call.args.push_back(std::move(list));
    } else {
      call.args.push_back(Substitute(node, names, call));
    }
    // Tensors in the arguments come behind the first.
    Json kwargs = Json::object();
    for (const auto& [key, value] : call.kwargs.items())
      kwargs[key] = Substitute(value, names, call);
    call.kwargs = std::move(kwargs);
  }

  void ReadNode3(const Json& node, const Names& names, KerasCall& call) {
    if (node.contains("args") && node["args"].is_array()) {
      for (const Json& argument : node["args"])
        call.args.push_back(Substitute(argument, names, call));
    }
    if (node.contains("kwargs") && node["kwargs"].is_object()) {
      for (const auto& [key, value] : node["kwargs"].items())
        call.kwargs[key] = Substitute(value, names, call);
    }
  }

  void Connect(const Json& layers, const Json& config, KerasModel& model) {
    Names names;
    for (size_t i = 0; i < model.layers.size(); ++i) {
      if (!names.layers.emplace(model.layers[i].name, static_cast<int>(i)).second)
        problems_.Add(
            InvalidArgument("model `{}` has two layers `{}`", model.name, model.layers[i].name));
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto nodes = layers[i].find("inbound_nodes");
      if (nodes == layers[i].end() || !nodes->is_array()) continue;
      for (const Json& node : *nodes) {
        KerasCall call;
        if (node.is_object() && node.contains("args")) {
          ReadNode3(node, names, call);
        } else {
          ReadNode2(node, names, call);
        }
        model.layers[i].calls.push_back(std::move(call));
      }
    }
    model.inputs = Ends(config, "input_layers", names);
    model.outputs = Ends(config, "output_layers", names);
    for (const std::string& name : unknown_)
      problems_.Add(
          InvalidArgument("model `{}` has no layer `{}`, which it calls", model.name, name));
    if (!problems_.ok()) return;
    CountFromZero(model);
    CheckRefs(model);
    if (model.outputs.empty())
      problems_.Add(InvalidArgument("model `{}` has no outputs", model.name));
  }

  // One tensor, a list of them, or names with tensors; in the order of the file.
  std::vector<TensorRef> Ends(const Json& config, const char* key, const Names& names) {
    KerasCall ends;
    if (config.is_object() && config.contains(key)) Substitute(config[key], names, ends);
    if (config.is_object() && config.contains(key) && ends.tensors.empty()) {
      // Layers that are not there are no tensors to Substitute.
      problems_.Add(InvalidArgument("`{}` names no layer of the model", key));
    }
    return ends.tensors;
  }

  // The first call of a layer that is a model has number 1 since TensorFlow's Keras: number 0 is the
  // one that made it. Keras 3 counts so in the list of outputs alone.
  void CountFromZero(KerasModel& model) const {
    if (version_ >= 3) {
      for (TensorRef& ref : model.outputs) {
        const KerasLayer& layer = model.layers[static_cast<size_t>(ref.layer)];
        if (layer.model != nullptr && !layer.model->sequential && ref.call > 0) --ref.call;
      }
      return;
    }
    std::vector<int> least(model.layers.size(), 1 << 30);
    const auto each = [&](const auto& visit) {
      for (KerasLayer& layer : model.layers) {
        for (KerasCall& call : layer.calls) {
          for (TensorRef& ref : call.tensors) visit(ref);
        }
      }
      for (TensorRef& ref : model.outputs) visit(ref);
    };
    each([&](TensorRef& ref) {
      int& first = least[static_cast<size_t>(ref.layer)];
      first = std::min(first, ref.call);
    });
    each([&](TensorRef& ref) {
      const auto at = static_cast<size_t>(ref.layer);
      if (model.layers[at].model != nullptr && least[at] == 1) --ref.call;
    });
  }

  void CheckRefs(const KerasModel& model) {
    const auto check = [&](const TensorRef& ref, const std::string& user) {
      const KerasLayer& layer = model.layers[static_cast<size_t>(ref.layer)];
      const size_t calls = layer.class_name == "InputLayer" ? 1 : layer.calls.size();
      if (ref.call < 0 || static_cast<size_t>(ref.call) >= calls || ref.output < 0)
        problems_.Add(
            InvalidArgument("{} takes output {} of call {} of layer `{}`, which has {} calls", user,
                            ref.output, ref.call, layer.name, calls));
    };
    for (const KerasLayer& layer : model.layers) {
      for (const KerasCall& call : layer.calls) {
        for (const TensorRef& ref : call.tensors) check(ref, fmt::format("layer `{}`", layer.name));
      }
    }
    for (const TensorRef& ref : model.outputs) check(ref, fmt::format("model `{}`", model.name));
    for (const TensorRef& ref : model.inputs) {
      if (model.layers[static_cast<size_t>(ref.layer)].class_name != "InputLayer")
        problems_.Add(InvalidArgument("input `{}` of model `{}` is not an InputLayer",
                                      model.layers[static_cast<size_t>(ref.layer)].name,
                                      model.name));
    }
  }

  const int version_;
  size_t layers_ = 0;
  std::set<std::string> unknown_;
  StatusCollector problems_;
};

}  // namespace

absl::StatusOr<KerasModel> ParseKerasModel(std::string_view text, int version) {
  if (IsTooDeep(text))
    return InvalidArgument("the model's configuration is nested deeper than {}", kMaxJsonDepth);
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) return InvalidArgument("the model's configuration is not JSON");
  if (!json.is_object()) return InvalidArgument("the model's configuration is not a JSON object");
  const std::string class_name = ClassNameOf(json);
  if (!IsModelClass(class_name)) {
    return Unsupported(
        "the model is of the class `{}`: its computation is in Python code, which the file lacks; "
        "expected a Functional or Sequential model",
        class_name);
  }
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const KerasModel> model,
                          ModelParser(version).Parse(json, 0));
  return *model;
}

}  // namespace quench::importer
