// Values of TorchScript at import, for its operators on numbers, strings and containers.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <optional>
#include <string>

#include "services/importer/torch/value.h"

namespace quench::importer {

using ListPtr = std::shared_ptr<TorchList>;
using DictPtr = std::shared_ptr<TorchDict>;
using Maybe = std::optional<TorchValue>;

// Largest list or tensor that is expanded, in elements.
inline constexpr size_t kMaxScriptItems = 1'000'000;

template <typename T>
const T* As(const TorchValue& value) {
  return std::get_if<T>(&value);
}

// The values of numbers and bools that are known at import.
std::optional<double> RealOf(const TorchValue& value);
std::optional<int64_t> IntOf(const TorchValue& value);
// Whether the value is a number, known at import or at run time.
bool IsNumber(const TorchValue& value);
// The value as Python's str() gives it; "?" for values without such a text here.
std::string ScriptText(const TorchValue& value);
bool AreEqual(const TorchValue& a, const TorchValue& b);
// INVALID_ARGUMENT if the value, which is to become part of a list, dict or object, contains that at any
// depth.
absl::Status CheckNesting(const TorchValue& container, const TorchValue& part);

}  // namespace quench::importer
