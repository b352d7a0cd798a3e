// Values of a PyTorch program at import: numbers, strings and containers that are known then, and
// tensors and numbers known only at run time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/importer/torch/tensors.h"

namespace quench::importer {

using Handle = int32_t;  // a value of GraphBuilder
struct TensorCell;
struct TorchList;
struct TorchDict;
struct TorchObject;
using CellPtr = std::shared_ptr<TensorCell>;

// A number known only at run time: a scalar tensor in the graph.
struct RuntimeNumber {
  enum class Kind : uint8_t { kInt, kFloat, kBool };
  Handle handle = -1;
  Kind kind = Kind::kInt;
};

// A name that stands for a function or class of the archive, or an operator.
struct TorchName {
  std::string text;
};

using TorchValue = std::variant<std::monostate, bool, int64_t, double, std::string, RuntimeNumber,
                                CellPtr, std::shared_ptr<TorchList>, std::shared_ptr<TorchDict>,
                                std::shared_ptr<TorchObject>, TorchName>;

struct TorchList {
  std::vector<TorchValue> items;
  bool is_tuple = false;
};

struct TorchDict {
  std::vector<std::pair<TorchValue, TorchValue>> items;  // keys are strings and integers
};

// An instance of a class of the archive, or of one of PyTorch's own classes (`packed`).
struct TorchObject {
  std::string type;  // "__torch__.Net"
  std::map<std::string, TorchValue> attributes;
  std::vector<TorchValue> state;    // of PyTorch's own classes, and of named tuples
  std::vector<std::string> fields;  // of named tuples
  std::string path;                 // "encoder.layer1", "" for the model
};

// A tensor as programs see it: it may be written to, and be part of another. `view` makes it from `base`, the
// tensor of which it is a part.
struct TensorCell {
  Handle handle = -1;
  uint64_t version = 0;
  CellPtr base;
  uint64_t base_version = 0;
  std::string view;                                           // the operator
  std::vector<std::pair<std::string, TorchValue>> arguments;  // of `view`, without the base
  std::shared_ptr<std::vector<std::weak_ptr<TensorCell>>>
      parts;                // of one split; they do not overlap
  std::string name;         // of a parameter or buffer
  bool is_complex = false;  // an additional last axis has the real and the imaginary part
  bool is_number = false;   // a trace made it from a number: in arithmetic only its category counts
};

inline bool IsNone(const TorchValue& value) {
  return std::holds_alternative<std::monostate>(value);
}

inline TorchValue MakeList(std::vector<TorchValue> items, bool is_tuple = false) {
  auto list = std::make_shared<TorchList>();
  list->items = std::move(items);
  list->is_tuple = is_tuple;
  return list;
}

}  // namespace quench::importer
