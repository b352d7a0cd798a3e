// The arguments of a call, by the names of their parameters.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/importer/keras/convert.h"

namespace quench::importer {

class KerasArguments {
 public:
  // `parameters`, separated by spaces, are the names of positional arguments.
  KerasArguments(KerasNode& node, std::string_view parameters);

  // The argument; null if it is not given, or None.
  const nlohmann::json* Find(const std::string& name) const;
  bool Flag(const std::string& name, bool fallback) const;
  std::optional<int64_t> Int(const std::string& name) const;
  std::optional<double> Number(const std::string& name) const;
  std::string Text(const std::string& name, const std::string& fallback = "") const;
  // A list of integers, or a single one; nothing if an element is not an integer.
  std::optional<std::vector<int64_t>> Ints(const std::string& name) const;
  // The argument as an input; kNone if it is not an input.
  ValueId Tensor(const std::string& name) const;
  ValueId TensorIn(const nlohmann::json& value) const;
  // The same, but numbers and lists of numbers become constants of the type of `like`.
  absl::StatusOr<ValueId> Operand(const std::string& name, ValueId like) const;
  absl::StatusOr<ValueId> OperandIn(const nlohmann::json& value, ValueId like) const;

 private:
  KerasNode& n_;
  nlohmann::json named_ = nlohmann::json::object();
};

}  // namespace quench::importer
