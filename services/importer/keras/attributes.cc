#include "services/importer/keras/attributes.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTrainingOnly[] = {"name",
                                              "trainable",
                                              "dtype",
                                              "build_config",
                                              "seed",
                                              "batch_input_shape",
                                              "batch_shape",
                                              "registered_name",
                                              "shared_object_id",
                                              "function",
                                              "cell",
                                              "layer",
                                              "backward_layer"};
constexpr std::string_view kTrainingEndings[] = {"_initializer", "_regularizer", "_constraint"};

bool IsLeftOut(const std::string& key) {
  if (std::find(std::begin(kTrainingOnly), std::end(kTrainingOnly), key) != std::end(kTrainingOnly))
    return true;
  return std::any_of(std::begin(kTrainingEndings), std::end(kTrainingEndings),
                     [&](std::string_view ending) { return key.ends_with(ending); });
}

// The value in Keras 3's form of tuples and small tensors; a part of `value`.
const Json& Unwrapped(Json&& value) = delete;
const Json& Unwrapped(const Json& value) {
  if (!value.is_object() || !value.contains("class_name")) return value;
  const Json& name = value["class_name"];
  if (name == "__tuple__" && value.contains("items")) return value["items"];
  if ((name == "__tensor__" || name == "__numpy__") && value.contains("config") &&
      value["config"].is_object() && value["config"].contains("value"))
    return value["config"]["value"];
  return value;
}

void Flatten(const Json& list, std::vector<Json>& items) {
  for (const Json& each : list) {
    const Json& item = Unwrapped(each);
    if (item.is_array()) {
      Flatten(item, items);
    } else {
      items.push_back(item);
    }
  }
}

template <typename T>
std::vector<T> ListOf(const std::vector<Json>& items) {
  std::vector<T> list;
  list.reserve(items.size());
  for (const Json& item : items) list.push_back(item.get<T>());
  return list;
}

void Add(const std::string& key, const Json& value, std::map<std::string, Attribute>& attributes);

void AddList(const std::string& key, const Json& value,
             std::map<std::string, Attribute>& attributes) {
  std::vector<Json> items;
  Flatten(value, items);
  const auto all = [&](auto is) { return std::all_of(items.begin(), items.end(), is); };
  if (all([](const Json& item) { return item.is_number_integer(); })) {
    attributes[key] = ListOf<int64_t>(items);
  } else if (all([](const Json& item) { return item.is_number(); })) {
    attributes[key] = ListOf<double>(items);
  } else if (all([](const Json& item) { return item.is_string(); })) {
    attributes[key] = ListOf<std::string>(items);
  } else {
    attributes[key] = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

void Add(const std::string& key, const Json& given, std::map<std::string, Attribute>& attributes) {
  const Json& value = Unwrapped(given);
  if (value.is_boolean()) {
    attributes[key] = int64_t{value.get<bool>()};
  } else if (value.is_number_integer()) {
    attributes[key] = value.get<int64_t>();
  } else if (value.is_number()) {
    attributes[key] = value.get<double>();
  } else if (value.is_string()) {
    attributes[key] = value.get<std::string>();
  } else if (value.is_array()) {
    AddList(key, value, attributes);
  } else if (value.is_object()) {
    for (const auto& [inner, item] : value.items()) {
      if (!IsLeftOut(inner)) Add(key + "." + inner, item, attributes);
    }
  }
}

}  // namespace

std::map<std::string, Attribute> AttributesOf(const Json& config) {
  std::map<std::string, Attribute> attributes;
  if (!config.is_object()) return attributes;
  for (const auto& [key, value] : config.items()) {
    if (!key.empty() && !IsLeftOut(key)) Add(key, value, attributes);
  }
  return attributes;
}

}  // namespace quench::importer
