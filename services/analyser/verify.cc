#include <algorithm>
#include <cmath>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "common/runner/runner.h"
#include "services/analyser/analyser.h"

namespace quench::analyser {
namespace {

using TensorSink = std::function<void(const std::string&, const Tensor&)>;

// The model's answer: by the interpreter, or by a build in which every layer is on its reference
// nest.
class Oracle {
 public:
  static absl::StatusOr<Oracle> Create(const Graph& graph, const VerifyOptions& options, bool taps,
                                       const std::filesystem::path& folder,
                                       const StepContext& context) {
    Oracle oracle(graph);
    std::string kind = options.oracle;
    if (kind.empty()) {
      QUENCH_ASSIGN_OR_RETURN(const ModelReport report,
                              Analyse(graph, graph, options.sizes, context));
      kind = report.macs <= kInterpreterMacs ? "interpreter" : "reference";
    }
    oracle.kind_ = kind;
    if (kind == "interpreter") return oracle;
    if (!options.build) return Unsupported("the reference oracle needs a build function");
    const std::filesystem::path library = folder / (taps ? "reference_taps.so" : "reference.so");
    QUENCH_RETURN_IF_ERROR(
        Annotate(options.build(graph, true, taps, library, context), "reference build"));
    QUENCH_ASSIGN_OR_RETURN(oracle.artifact_, Artifact::Open(library, options.threads));
    return oracle;
  }

  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs, const TensorSink& sink,
                                          const StepContext& context) const {
    if (artifact_ != nullptr) return artifact_->Run(inputs, context, sink);
    ops::EvaluateOptions options;
    options.on_value = sink;
    return ops::Evaluate(graph_, inputs, context, options);
  }
  const std::string& kind() const { return kind_; }

 private:
  explicit Oracle(const Graph& graph) : graph_(graph) {}
  const Graph& graph_;
  std::string kind_;
  std::unique_ptr<Artifact> artifact_;
};

absl::Status CheckInterface(const Graph& graph, const Artifact& artifact) {
  StatusCollector problems;
  const auto compare = [&](const char* what, const std::vector<ValueId>& ids,
                           const std::vector<ArtifactTensor>& tensors) {
    if (ids.size() != tensors.size()) {
      problems.Add(InvalidArgument("the library has {} {}s, the model {}", tensors.size(), what,
                                   ids.size()));
      return;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const Value& value = graph.value(ids[i]);
      if (value.name != tensors[i].name || value.type.dtype != tensors[i].dtype) {
        problems.Add(InvalidArgument("{} {} is `{}` ({}) in the library and `{}` ({}) in the model",
                                     what, i, tensors[i].name, DataTypeName(tensors[i].dtype),
                                     value.name, DataTypeName(value.type.dtype)));
      }
    }
  };
  compare("input", graph.inputs, artifact.inputs());
  compare("output", graph.outputs, artifact.outputs());
  return problems.Finish();
}

void Worsen(std::vector<OutputError>& errors, const std::string& name, double error) {
  const auto found = std::find_if(errors.begin(), errors.end(),
                                  [&](const OutputError& e) { return e.name == name; });
  if (found == errors.end()) {
    errors.push_back({name, error});
  } else {
    found->error = std::isnan(error) ? error : std::max(found->error, error);
  }
}

bool Within(double error, double tolerance) { return error <= tolerance; }  // false for NaN

// Layer by layer through tap builds: values of both sides matched by name.
absl::Status CompareLayers(const Graph& graph, const VerifyOptions& options,
                           const std::vector<Tensor>& inputs, const std::filesystem::path& folder,
                           VerifyReport& report, const StepContext& context) {
  if (!options.build) return Unsupported("comparing layers needs a build function");
  const std::filesystem::path library = folder / "taps.so";
  QUENCH_RETURN_IF_ERROR(
      Annotate(options.build(graph, false, true, library, context), "tap build"));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(library, options.threads));
  QUENCH_ASSIGN_OR_RETURN(const Oracle oracle,
                          Oracle::Create(graph, options, true, folder, context));
  std::map<std::string, Tensor> expected;
  const auto keep = [&](const std::string& name, const Tensor& tensor) { expected[name] = tensor; };
  QUENCH_RETURN_IF_ERROR(oracle.Run(inputs, keep, context).status());
  double worst = options.tolerance;
  const auto compare = [&](const std::string& name, const Tensor& tensor) {
    const auto found = expected.find(name);
    if (found == expected.end() || found->second.dims() != tensor.dims() ||
        found->second.dtype() != tensor.dtype())
      return;
    const double error = RelativeError(tensor, found->second);
    report.layers.push_back({name, error});
    if (Within(error, options.tolerance)) return;
    if (report.first_layer.empty()) report.first_layer = name;
    if (report.worst_layer.empty() || error > worst || std::isnan(error)) {
      worst = std::isnan(error) ? INFINITY : error;
      report.worst_layer = name;
    }
  };
  return artifact->Run(inputs, context, compare).status();
}

}  // namespace

namespace {

// Whether a model, or a body in it, says what becomes integers.
bool HasIntegers(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    if (node.op == "DequantizeLinear" || node.op.starts_with("QLinear") ||
        node.op == "ConvInteger" || node.op == "MatMulInteger")
      return true;
    return std::any_of(node.attributes.begin(), node.attributes.end(), [](const auto& each) {
      const GraphPtr* body = std::get_if<GraphPtr>(&each.second);
      return body != nullptr && HasIntegers(**body);
    });
  });
}

constexpr uint64_t kManyIntegers = 8;  // below it, where a model takes that

}  // namespace

absl::StatusOr<VerifyReport> Verify(const Graph& canonical,
                                    const std::filesystem::path& artifact_path,
                                    const VerifyOptions& options, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(artifact_path, options.threads));
  QUENCH_RETURN_IF_ERROR(CheckInterface(canonical, *artifact));
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  // As codegen does, so that integers are the same to the last bit; a model of floats stays what it is.
  Graph integers = canonical;
  if (HasIntegers(canonical)) {
    passes::PassOptions how = options.passes;
    how.opt_level = std::min(how.opt_level, 2);  // groups compute what their nodes do
    QUENCH_ASSIGN_OR_RETURN(integers, passes::RunPipeline(std::move(integers), how, context));
    QUENCH_ASSIGN_OR_RETURN(integers, passes::RunCodegenPasses(std::move(integers), how, context));
  }
  QUENCH_ASSIGN_OR_RETURN(const Oracle oracle,
                          Oracle::Create(integers, options, false, folder.path(), context));
  VerifyReport report;
  report.oracle = oracle.kind();
  std::vector<Tensor> worst_inputs;
  double worst = -1;
  for (int sample = 0; sample < options.samples; ++sample) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report({"verify", "", sample, options.samples});
    const auto draw = [&](uint64_t below) {
      return RandomInputs(artifact->inputs(), options.seed + static_cast<uint64_t>(sample),
                          options.sizes, below);
    };
    QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, draw(kManyIntegers));
    absl::StatusOr<std::vector<Tensor>> result = oracle.Run(inputs, {}, context);
    if (!result.ok() && context.Check().ok()) {  // an integer may be an index that is too large
      QUENCH_ASSIGN_OR_RETURN(inputs, draw(kAnyIndex));
      result = oracle.Run(inputs, {}, context);
    }
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> expected, std::move(result));
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> actual, artifact->Run(inputs, context));
    double sample_worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = RelativeError(actual[i], expected[i]);
      Worsen(report.outputs, artifact->outputs()[i].name, error);
      sample_worst = std::isnan(error) ? INFINITY : std::max(sample_worst, error);
    }
    if (sample_worst > worst) {
      worst = sample_worst;
      worst_inputs = inputs;
    }
  }
  report.passed =
      std::all_of(report.outputs.begin(), report.outputs.end(),
                  [&](const OutputError& e) { return Within(e.error, options.tolerance); });
  if (options.per_layer || (!report.passed && options.build)) {
    QUENCH_RETURN_IF_ERROR(
        CompareLayers(canonical, options, worst_inputs, folder.path(), report, context));
  }
  return report;
}

}  // namespace quench::analyser
