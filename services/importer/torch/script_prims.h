// Values that TorchScript computes while it is imported: numbers, texts, lists and dicts. Everything else is a call of
// an operator.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <vector>

#include "services/importer/torch/program.h"

namespace quench::importer {

class ScriptPrims {
 public:
  ScriptPrims(TorchProgram& program, const ImportOptions& options)
      : p_(program), options_(options) {}

  // A call of `torch.op` (domain "aten") or `ops.domain.op`; ABORTED for an exception that the program raises.
  absl::StatusOr<TorchValue> Call(const std::string& domain, const std::string& op,
                                  const std::string& name, std::vector<TorchValue> arguments,
                                  TorchArguments named);

  absl::StatusOr<TorchValue> ToNumber(const TorchValue& value, RuntimeNumber::Kind kind);
  absl::StatusOr<TorchValue> Item(const TorchValue& container, const TorchValue& key);
  // A quantized tensor of a file as a real one: a constant, or one of integers and its DequantizeLinear.
  absl::StatusOr<CellPtr> Dequantized(const std::string& name, const TorchTensor& tensor);

 private:
  using Arguments = std::vector<TorchValue>;
  absl::StatusOr<std::optional<TorchValue>> Known(const std::string& domain, const std::string& op,
                                                  const std::string& name, Arguments& arguments,
                                                  TorchArguments& named);
  absl::StatusOr<std::optional<TorchValue>> Arithmetic(const std::string& op,
                                                       const std::string& name,
                                                       const Arguments& arguments);
  absl::StatusOr<std::optional<TorchValue>> OnContainer(const std::string& op,
                                                        const Arguments& arguments);
  absl::StatusOr<std::optional<TorchValue>> OnText(const std::string& op, const std::string& text,
                                                   const Arguments& arguments);
  absl::StatusOr<std::optional<TorchValue>> OnDict(const std::string& op, TorchDict& dict,
                                                   const Arguments& arguments);
  absl::StatusOr<std::optional<TorchValue>> OnList(const std::string& op, TorchList& list,
                                                   const Arguments& arguments);
  absl::StatusOr<std::optional<TorchValue>> Reduced(const std::string& op,
                                                    const std::vector<TorchValue>& items);
  absl::StatusOr<std::optional<TorchValue>> Changed(const std::string& op, TorchList& list,
                                                    const Arguments& arguments);
  absl::StatusOr<std::optional<TorchValue>> OnTensor(const std::string& op, const std::string& name,
                                                     Arguments& arguments, TorchArguments& named);
  absl::StatusOr<std::optional<TorchValue>> Quantized(const std::string& domain,
                                                      const std::string& op,
                                                      const std::string& name, Arguments& arguments,
                                                      TorchArguments& named);
  absl::StatusOr<TorchValue> SizeOf(const CellPtr& cell, int64_t axis, const std::string& name);
  absl::StatusOr<TorchValue> TensorOf(const TorchValue& data, const TorchValue* dtype);
  absl::StatusOr<TorchValue> FakeQuantized(TorchValue real, const TorchValue& scale,
                                           const TorchValue& zero, int64_t type,
                                           const std::string& name);
  absl::Status MayChange(const std::string& what) const;

  TorchProgram& p_;
  const ImportOptions& options_;
};

}  // namespace quench::importer
