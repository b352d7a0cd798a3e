// Values of TorchScript while it is imported, as its operators on numbers, texts and containers take them.
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

// Largest list or tensor that is written out.
inline constexpr size_t kMaxScriptItems = 1'000'000;

template <typename T>
const T* As(const TorchValue& value) {
  return std::get_if<T>(&value);
}

// Values of numbers and bools that are known now.
std::optional<double> RealOf(const TorchValue& value);
std::optional<int64_t> IntOf(const TorchValue& value);
// A number, known now or in a run.
bool IsNumber(const TorchValue& value);
// As Python's str() has it; "?" for what has no text here.
std::string ScriptText(const TorchValue& value);
bool AreEqual(const TorchValue& a, const TorchValue& b);
// A value that becomes part of a list, dict or object must not contain it, at any depth:
// INVALID_ARGUMENT.
absl::Status CheckNesting(const TorchValue& container, const TorchValue& part);

}  // namespace quench::importer
