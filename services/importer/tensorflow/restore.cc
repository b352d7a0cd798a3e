#include "services/importer/tensorflow/restore.h"

#include <vector>

namespace quench::importer {
namespace {

constexpr int kMaxCalls = 8;  // of restoring functions within one another

class KeyFinder {
 public:
  explicit KeyFinder(TfProgram& program) : program_(program) {}

  // `args`: the variables that a function is given, "" for other values.
  absl::Status Read(const TfBody& body, const std::vector<std::string>& args, int depth) {
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      const tf::NodeDef& node = *body.nodes[i];
      const std::vector<TfRef>& inputs = body.inputs[i];
      const bool assigns = node.op() == "Assign" || node.op() == "AssignVariableOp";
      if (assigns && inputs.size() == 2) {
        const std::string variable = VariableOf(body, inputs[0], args);
        const std::string key = KeyOf(body, inputs[1]);
        if (!variable.empty() && !key.empty()) keys.emplace(variable, key);
      } else if (const tf::FunctionDef* called = CalledBy(node, program_.library());
                 called != nullptr && depth < kMaxCalls && (depth > 0 || Restores(node))) {
        QUENCH_ASSIGN_OR_RETURN(const TfBody* inner, program_.BodyOf(*called));
        std::vector<std::string> given;
        for (const TfRef& ref : inputs) given.push_back(VariableOf(body, ref, args));
        QUENCH_RETURN_IF_ERROR(Read(*inner, given, depth + 1));
      }
    }
    return absl::OkStatus();
  }

  std::map<std::string, std::string> keys;

 private:
  bool Restores(const tf::NodeDef& node) const {
    return node.name() == program_.file().saver.restore_op_name();
  }

  static TfRef WithoutCopies(const TfBody& body, TfRef ref) {
    for (size_t steps = 0; ref.node >= 0 && steps < body.nodes.size(); ++steps) {
      const std::string& op = body.node(ref.node).op();
      if ((op != "Identity" && op != "Cast") || body.inputs_of(ref.node).size() != 1) break;
      ref = body.inputs_of(ref.node)[0];
    }
    return ref;
  }

  static std::string VariableOf(const TfBody& body, TfRef ref,
                                const std::vector<std::string>& args) {
    ref = WithoutCopies(body, ref);
    if (ref.node < 0) {
      const auto argument = static_cast<size_t>(~ref.node);
      return argument < args.size() ? args[argument] : "";
    }
    const tf::NodeDef& node = body.node(ref.node);
    const bool is_variable =
        node.op() == "VarHandleOp" || node.op() == "VariableV2" || node.op() == "Variable";
    return is_variable ? node.name() : "";
  }

  // The name that RestoreV2 reads for this value.
  static std::string KeyOf(const TfBody& body, TfRef ref) {
    ref = WithoutCopies(body, ref);
    if (ref.node < 0 || body.node(ref.node).op() != "RestoreV2") return "";
    const std::vector<TfRef>& inputs = body.inputs_of(ref.node);
    if (inputs.size() < 2 || inputs[1].node < 0) return "";
    const tf::AttrValue* names = FindAttr(body.node(inputs[1].node), "value");
    if (names == nullptr || ref.output >= names->tensor().string_val_size()) return "";
    return names->tensor().string_val(ref.output);
  }

  TfProgram& program_;
};

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> RestoredKeys(TfProgram& program) {
  KeyFinder finder(program);
  QUENCH_RETURN_IF_ERROR(finder.Read(program.main(), {}, 0));
  return std::move(finder.keys);
}

}  // namespace quench::importer
