// Assigns the numbers of a file to layers. Keras has them in the order of the layers' own lists, so
// the rows of keras_layers.def say that order.
#include <algorithm>
#include <cctype>
#include <set>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/keras/convert.h"
#include "services/importer/keras/keras_file.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

struct Role {
  std::string name;    // "kernel"
  std::string folder;  // within the layer's own in a .keras file: "cell"
  bool trainable = true;
};

// A layer that computes, and where it stands.
struct Leaf {
  const KerasLayer* layer = nullptr;
  std::string folder;  // in a .keras file
  bool trainable = true;
  std::vector<Role> roles;
};

// Whether a weight that depends on `flag` is there: a flag that is not written is set.
bool HasWeight(const Json& config, std::string flag) {
  if (flag.starts_with('=')) {  // `=key:value`
    const size_t colon = flag.find(':');
    const auto text = config.find(flag.substr(1, colon - 1));
    return text != config.end() && *text == flag.substr(colon + 1);
  }
  const bool absent = !flag.starts_with('+');  // `+`: a flag that is not written is not set
  if (!absent) flag.erase(0, 1);
  const bool turned = flag.starts_with('!');
  if (turned) flag.erase(0, 1);
  const auto found = config.find(flag);
  bool set = absent;
  if (found != config.end()) set = found->is_boolean() ? found->get<bool>() : !found->is_null();
  if (found == config.end() && turned) set = false;
  return set != turned;
}

// "~cell/bias?use_bias": not trained, in the folder `cell`, there where `use_bias` is set.
std::vector<Role> RolesOf(const KerasLayer& layer) {
  const KerasRow* row = FindKerasRow(layer.domain, layer.class_name);
  std::vector<Role> roles;
  std::string_view rest;
  if (row != nullptr && layer.domain == "keras") rest = row->weights;
  Json config = layer.config;
  const auto flag = config.find("rms_scaling");
  if (flag != config.end() && flag->is_boolean() && flag->get<bool>()) {
    config["scale"] = true;
    config["center"] = false;
  }
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    std::string word(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    Role role;
    const size_t question = word.find('?');
    if (question != std::string::npos) {
      if (!HasWeight(config, word.substr(question + 1))) continue;
      word.resize(question);
    }
    role.trainable = !word.starts_with('~');
    if (!role.trainable) word.erase(0, 1);
    const size_t slash = word.find('/');
    if (slash != std::string::npos) {
      role.folder = word.substr(0, slash);
      word.erase(0, slash + 1);
    }
    role.name = std::move(word);
    roles.push_back(std::move(role));
  }
  return roles;
}

// "Conv2DTranspose" -> "conv2d_transpose", as Keras' naming.to_snake_case has it.
std::string SnakeCase(const std::string& name) {
  const auto upper = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
  const auto lower = [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; };
  std::string words, snake;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i > 0 && upper(name[i]) && i + 1 < name.size() && lower(name[i + 1])) words += '_';
    words += name[i];
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && upper(words[i]) && lower(words[i - 1])) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(words[i])));
  }
  return snake;
}

void AddLeaves(const KerasLayer& layer, const std::string& folder, bool trainable,
               std::vector<Leaf>& leaves);

void AddLeavesOf(const KerasModel& model, const std::string& folder, bool trainable,
                 std::vector<Leaf>& leaves) {
  std::map<std::string, int> used;
  for (const KerasLayer& layer : model.layers) {
    if (layer.domain == "keras.ops") continue;
    std::string written = layer.written_as.empty() ? layer.class_name : layer.written_as;
    if (written == "Model") written = "Functional";
    if (written == "GroupQueryAttention") written = "GroupedQueryAttention";  // the class in Python
    std::string name = SnakeCase(written);
    const int number = used[name]++;
    if (number > 0) name += fmt::format("_{}", number);
    AddLeaves(layer, folder + "layers/" + name + "/", trainable, leaves);
  }
}

void AddLeaves(const KerasLayer& layer, const std::string& folder, bool trainable,
               std::vector<Leaf>& leaves) {
  const auto flag = layer.config.find("trainable");
  const bool frozen = flag != layer.config.end() && flag->is_boolean() && !flag->get<bool>();
  trainable = trainable && !frozen;
  if (layer.model != nullptr) {
    AddLeavesOf(*layer.model, folder, trainable, leaves);
    return;
  }
  if (layer.inner.size() == 1) AddLeaves(layer.inner[0], folder + "layer/", trainable, leaves);
  if (layer.inner.size() == 2) {
    AddLeaves(layer.inner[0], folder + "forward_layer/", trainable, leaves);
    AddLeaves(layer.inner[1], folder + "backward_layer/", trainable, leaves);
  }
  if (layer.inner.empty()) leaves.push_back({&layer, folder, trainable, RolesOf(layer)});
}

class Assigner {
 public:
  explicit Assigner(const KerasFile& file) : file_(file) {}

  absl::StatusOr<LayerWeights> Run() {
    if (file_.is_archive) {
      std::vector<Leaf> leaves;
      AddLeavesOf(file_.model, "", true, leaves);
      for (const Leaf& leaf : leaves) TakeNumbered(leaf);
    } else {
      for (const KerasLayer& layer : file_.model.layers) TakeListed(layer);
    }
    QUENCH_RETURN_IF_ERROR(problems_.Finish());
    return std::move(weights_);
  }

 private:
  void Give(const Leaf& leaf, const Role& role, const std::string& path) {
    const auto found = file_.weights.datasets.find(path);
    if (found == file_.weights.datasets.end()) {
      problems_.Add(InvalidArgument("layer `{}` ({}): its {} is missing: the file has no `{}`",
                                    leaf.layer->name, leaf.layer->class_name, role.name,
                                    Printable(path)));
    } else if (!found->second.refused.empty()) {
      problems_.Add(InvalidArgument("layer `{}` ({}): its {}, `{}`, {}", leaf.layer->name,
                                    leaf.layer->class_name, role.name, Printable(path),
                                    Printable(found->second.refused)));
    } else {
      weights_[leaf.layer].push_back({role.name, path, &found->second});
    }
  }

  // .keras: `vars/0`, `vars/1` in the layer's folder, or in those of what it is made of.
  void TakeNumbered(const Leaf& leaf) {
    std::map<std::string, int> next;
    for (const Role& role : leaf.roles) {
      const std::string folder = leaf.folder + (role.folder.empty() ? "" : role.folder + "/");
      Give(leaf, role, fmt::format("{}vars/{}", folder, next[folder]++));
    }
  }

  // .h5: a group for each layer of the model, with the names of its weights.
  void TakeListed(const KerasLayer& layer) {
    std::vector<Leaf> leaves;
    AddLeaves(layer, "", true, leaves);
    size_t wanted = 0;
    for (const Leaf& leaf : leaves) wanted += leaf.roles.size();
    if (wanted == 0) return;
    const std::string group = file_.root + layer.name;
    std::vector<std::string> names = NamesIn(group);
    if (names.size() != wanted) {
      problems_.Add(InvalidArgument("layer `{}` ({}) has {} weights in the file, expected {}",
                                    layer.name, layer.class_name, names.size(), wanted));
      return;
    }
    if (leaves.size() > 1 && TakeByName(leaves, group, names)) return;
    // Trained weights come before untrained ones.
    size_t next = 0;
    for (const bool trained : {true, false}) {
      for (const Leaf& leaf : leaves) {
        for (const Role& role : leaf.roles) {
          if ((leaf.trainable && role.trainable) == trained)
            Give(leaf, role, group + "/" + names[next++]);
        }
      }
    }
    for (const Leaf& leaf : leaves) Sort(leaf);
  }

  // `weight_names`, or where these are too many for one attribute, `weight_names0` and so on.
  std::vector<std::string> NamesIn(const std::string& group) const {
    if (const auto* names = file_.weights.Attribute(group, "weight_names")) return *names;
    std::vector<std::string> all;
    for (int i = 0;; ++i) {
      const auto* part = file_.weights.Attribute(group, fmt::format("weight_names{}", i));
      if (part == nullptr) return all;
      all.insert(all.end(), part->begin(), part->end());
    }
  }

  // Names of weights have the names of their layers within: that is clear where each layer finds as many
  // as it has.
  bool TakeByName(const std::vector<Leaf>& leaves, const std::string& group,
                  const std::vector<std::string>& names) {
    std::map<std::string, std::vector<std::string>> by_part;
    for (const std::string& name : names) {
      size_t begin = 0;
      for (size_t at = name.find('/'); at != std::string::npos; at = name.find('/', begin)) {
        by_part[name.substr(begin, at - begin)].push_back(name);
        begin = at + 1;
      }
    }
    std::set<std::string> seen;
    for (const Leaf& leaf : leaves) {
      if (leaf.roles.empty()) continue;
      const auto found = by_part.find(leaf.layer->name);
      if (found == by_part.end() || found->second.size() != leaf.roles.size()) return false;
      for (const std::string& name : found->second) {
        if (!seen.insert(name).second) return false;
      }
    }
    for (const Leaf& leaf : leaves) {
      size_t next = 0;
      for (const Role& role : leaf.roles)
        Give(leaf, role, group + "/" + by_part[leaf.layer->name][next++]);
    }
    return true;
  }

  // In the order of the roles.
  void Sort(const Leaf& leaf) {
    const auto place = [&](const LayerWeight& weight) {
      return std::find_if(leaf.roles.begin(), leaf.roles.end(),
                          [&](const Role& role) { return role.name == weight.role; });
    };
    std::vector<LayerWeight>& list = weights_[leaf.layer];
    std::sort(list.begin(), list.end(),
              [&](const LayerWeight& a, const LayerWeight& b) { return place(a) < place(b); });
  }

  const KerasFile& file_;
  LayerWeights weights_;
  StatusCollector problems_;
};

}  // namespace

absl::StatusOr<LayerWeights> WeightsOf(const KerasFile& file) { return Assigner(file).Run(); }

}  // namespace quench::importer
