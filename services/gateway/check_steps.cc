#include <map>
#include <set>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/runner/device.h"
#include "common/steps/gpus.h"
#include "services/gateway/expand.h"

namespace quench::gateway::internal {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const char* NameOf(OutputKind kind) { return kind == OutputKind::kModule ? "Module" : "Digest"; }

class Checker {
 public:
  Checker(const v1::StepList& steps, std::string path, Violations* violations)
      : steps_(steps), path_(std::move(path)), violations_(violations) {}

  void CheckNames() {
    for (int i = 0; i < steps_.steps_size(); ++i) {
      const std::string& name = steps_.steps(i).name();
      if (!IsStepName(name, true)) {
        violations_->Add(At(i, ".name"),
                         fmt::format("has {} bytes or an unusual character, must be 1 to 255 "
                                     "letters, digits, `_`, `-`, `.` and `/`",
                                     name.size()));
      } else if (!positions_.emplace(name, i).second) {
        violations_->Add(At(i, ".name"),
                         fmt::format("is `{}`, as another one's: names must be unique", name));
      }
    }
  }

  void CheckStep(int i) {
    const v1::StepSpec& spec = steps_.steps(i);
    const StepRow* row = RowOf(spec);
    if (row == nullptr) {
      violations_->Add(At(i, ".request"), "is missing");
      return;
    }
    const Message& request = RequestOf(spec);
    if (Has(request, "step")) {
      violations_->Add(At(i, "." + row->request + ".step"), "is the gateway's to fill in");
    }
    const std::string device = steps::DeviceOf(request);
    if (!device.empty() && !NamesDevice(device)) {
      violations_->Add(At(i, "." + row->request + ".device"),
                       fmt::format("is `{}`, must be cpu, cuda or cuda:N", device));
    }
    if (spec.timeout().seconds() < 0 || spec.timeout().nanos() < 0)
      violations_->Add(At(i, ".timeout"), "is negative");
    std::set<std::string> bound;
    for (int b = 0; b < spec.bindings_size(); ++b) {
      CheckBinding(i, b, request, row->request, &bound);
    }
    for (const std::string& field : row->required) {
      if (!Has(request, field) && !bound.contains(field)) {
        violations_->Add(At(i, "." + row->request + "." + field),
                         "is missing: give it, or bind an output of another step to it");
      }
    }
    for (const Digest& digest : DigestsIn(request)) {
      if (!IsDigest(digest.hash()) || digest.size_bytes() < 0) {
        violations_->Add(At(i, "." + row->request),
                         fmt::format("names the blob `{}` of {} bytes, must be 64 lower-case hex "
                                     "digits and a size",
                                     digest.hash().substr(0, 80), digest.size_bytes()));
      }
    }
  }

  // Where steps follow their dependencies; steps of a cycle are reported.
  std::vector<int> Order() {
    const std::vector<std::vector<int>> dependencies = DependenciesOf(steps_);
    std::vector<int> order;
    std::vector<int> seen(dependencies.size(), 0);  // 1: being visited, 2: in the order
    std::vector<std::pair<int, size_t>> path;       // steps, and how many dependencies were visited
    for (int i = 0; i < steps_.steps_size(); ++i) {
      if (seen[i] == 0) path.emplace_back(i, 0);
      while (!path.empty()) {
        auto& [step, visited] = path.back();
        seen[step] = 1;
        if (visited == dependencies[step].size()) {
          seen[step] = 2;
          order.push_back(step);
          path.pop_back();
          continue;
        }
        const int dependency = dependencies[step][visited++];
        if (seen[dependency] == 1) AddCircle(step, dependency);
        if (seen[dependency] == 0) path.emplace_back(dependency, 0);
      }
    }
    return order;
  }

 private:
  std::string At(int i, const std::string& field) const {
    return fmt::format("{}[{}]{}", path_, i, field);
  }

  static bool Has(const Message& message, const std::string& name) {
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
    return field != nullptr && message.GetReflection()->HasField(message, field);
  }

  void CheckBinding(int i, int b, const Message& request, const std::string& name,
                    std::set<std::string>* bound) {
    const v1::Binding& binding = steps_.steps(i).bindings(b);
    const std::string at = At(i, fmt::format(".bindings[{}]", b));
    const std::string input = InputOf(binding), output = OutputOf(binding);
    const OutputKind kind = KindOfField(*request.GetDescriptor(), input);
    if (kind == OutputKind::kNone) {
      violations_->Add(at + ".input", fmt::format("is `{}`, must be a field of `{}` that is a "
                                                  "Digest or a Module",
                                                  input, name));
    } else if (Has(request, input) || !bound->insert(input).second) {
      violations_->Add(at + ".input", fmt::format("is `{}`, which has a value already", input));
    }
    const auto from = positions_.find(binding.step());
    if (from == positions_.end()) {
      violations_->Add(at + ".step", fmt::format("is `{}`, there is no such step", binding.step()));
      return;
    }
    const StepRow* row = RowOf(steps_.steps(from->second));
    if (row == nullptr) return;  // reported there
    const OutputKind given = KindOfOutput(*row, output);
    if (given == OutputKind::kNone) {
      violations_->Add(at + ".output",
                       fmt::format("is `{}`, which {} does not give", output, row->method));
    } else if (kind != OutputKind::kNone && given != kind) {
      violations_->Add(at + ".output",
                       fmt::format("is a {}, `{}` takes a {}", NameOf(given), input, NameOf(kind)));
    }
  }

  void AddCircle(int step, int dependency) {
    violations_->Add(At(step, ".bindings"),
                     fmt::format("close a circle: `{}` and `{}` wait for each other",
                                 steps_.steps(step).name(), steps_.steps(dependency).name()));
  }

  const v1::StepList& steps_;
  const std::string path_;
  Violations* const violations_;
  std::map<std::string, int> positions_;
};

}  // namespace

std::vector<int> CheckSteps(const v1::StepList& steps, const std::string& path,
                            Violations* violations) {
  if (steps.steps_size() == 0 || steps.steps_size() > kMaxSteps) {
    violations->Add(
        path, fmt::format("has {} steps, a workflow has 1 to {}", steps.steps_size(), kMaxSteps));
    return {};
  }
  Checker checker(steps, path, violations);
  checker.CheckNames();
  for (int i = 0; i < steps.steps_size(); ++i) checker.CheckStep(i);
  const std::vector<int> order = checker.Order();
  return violations->empty() ? order : std::vector<int>();
}

}  // namespace quench::gateway::internal
