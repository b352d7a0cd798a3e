// TorchScript: runs the model's `forward` on the values known at import; all else becomes nodes.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "services/importer/torch/model.h"
#include "services/importer/torch/script_ast.h"
#include "services/importer/torch/script_prims.h"

namespace quench::importer {

// The variables of a running function.
struct ScriptFrame {
  std::map<std::string, TorchValue> variables;
  std::string path;  // of the module whose code runs
  std::string file;
};

enum class ScriptFlow : uint8_t { kNext, kReturn };

// "Tensor" for `Tensor`, "List" for `List[int]`, "" for anything that is not a type.
std::string ScriptTypeName(const ExpressionPtr& type);

class ScriptReader {
 public:
  ScriptReader(const TorchArchive& archive, const ImportOptions& options,
               const std::set<std::string>& written, TorchProgram& program)
      : archive_(archive),
        options_(options),
        written_(written),
        p_(program),
        prims_(program, options) {}

  absl::StatusOr<TorchResult> Read();

 private:
  // ---- The archive ----
  absl::StatusOr<const ScriptFile*> FileOf(const std::string& module);
  absl::StatusOr<const ScriptClass*> ClassOf(const std::string& name);
  absl::StatusOr<const ScriptFunction*> FunctionOf(const std::string& name);
  absl::StatusOr<std::shared_ptr<const PickleFile>> LoadPickle(const std::string& name);
  absl::StatusOr<TorchValue> ValueOf(const Pickled& pickled, const std::string& path, int depth);
  absl::Status MarkNumber(const TorchValue& constant);
  absl::StatusOr<TorchValue> ObjectOf(const Pickled& pickled, const std::string& path, int depth);
  absl::Status SetState(const std::shared_ptr<TorchObject>& object, const Pickled& state,
                        int depth);

  // ---- The model's interface ----
  absl::StatusOr<TorchValue> InputOf(const std::string& name, const ExpressionPtr& type,
                                     std::vector<TorchInput>& inputs,
                                     std::vector<std::pair<size_t, TorchValue>>& places);

  // ---- Running ----
  absl::StatusOr<TorchValue> CallFunction(const ScriptFunction& function,
                                          std::vector<TorchValue> positional, TorchArguments named,
                                          const std::string& path);
  absl::StatusOr<ScriptFlow> Run(const std::vector<ScriptStatement>& block, ScriptFrame& frame,
                                 TorchValue& result);
  absl::StatusOr<ScriptFlow> RunStatement(const ScriptStatement& statement, ScriptFrame& frame,
                                          TorchValue& result);
  absl::Status Assign(const ScriptStatement& statement, ScriptFrame& frame);
  absl::Status AssignTo(const ExpressionPtr& target, const TorchValue& value, ScriptFrame& frame);
  absl::StatusOr<ScriptFlow> RunIf(const ScriptStatement& statement, ScriptFrame& frame,
                                   TorchValue& result);
  absl::Status RunLoop(const ScriptStatement& statement, ScriptFrame& frame, TorchValue& result);
  absl::Status RunRuntimeLoop(const ScriptStatement& statement, const TorchValue& count,
                              const TorchValue& condition, ScriptFrame& frame);
  absl::StatusOr<TorchValue> Evaluate(const ExpressionPtr& expression, ScriptFrame& frame);
  absl::StatusOr<TorchValue> EvaluateCall(const ScriptExpression& call, ScriptFrame& frame);
  absl::StatusOr<TorchValue> CallNamed(const std::string& name, const ScriptExpression& call,
                                       std::vector<TorchValue> arguments, TorchArguments named,
                                       ScriptFrame& frame);
  absl::StatusOr<TorchValue> CallQualified(const std::string& name,
                                           std::vector<TorchValue> arguments, TorchArguments named,
                                           ScriptFrame& frame);
  absl::StatusOr<TorchValue> CallMethod(const std::shared_ptr<TorchObject>& object,
                                        const std::string& method,
                                        std::vector<TorchValue> arguments, TorchArguments named);
  absl::StatusOr<TorchValue> AttributeOf(const TorchValue& value, const std::string& name);
  // "torch.add" for a chain of attributes that begins with one of the reserved names.
  static std::string DottedName(const ScriptExpression& expression, const ScriptFrame& frame);
  std::string NodeName(const ScriptFrame& frame, const std::string& op) const {
    return NodeNameIn(frame.path, op);
  }
  absl::Status Where(const absl::Status& status, const ScriptFrame& frame, int line) const;

  const TorchArchive& archive_;
  const ImportOptions& options_;
  const std::set<std::string>& written_;
  TorchProgram& p_;
  ScriptPrims prims_;
  std::map<std::string, std::unique_ptr<ScriptFile>> files_;
  std::vector<std::shared_ptr<const PickleFile>> pickles_;
  std::unordered_map<const Pickled*, TorchValue> values_;
  std::string storages_ = "data/";
  std::vector<TorchValue> constants_;
  std::vector<TorchState> states_;  // tensors of modules, by attribute
  int calls_ = 0;
  int64_t steps_ = 0;
};

}  // namespace quench::importer
