#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/ops/evaluate.h"
#include "common/runner/open_sizes.h"
#include "common/runner/runner.h"
#include "services/cli/best_classes.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/device_flag.h"
#include "services/cli/encryption.h"
#include "services/cli/input_flags.h"
#include "services/cli/labels.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"
#include "services/cli/taps.h"

namespace quench::cli {
namespace {

constexpr char kRunExamples[] = R"(Examples:
  quench run out/model.so --input photo.jpg        the five best classes, if the scaling is recorded
  quench run out/model.so --input photo.jpg --images imagenet --class-names imagenet.txt
  quench run out/model.so --input image=cat.npy --output result         writes result/<output>.npy
  quench run out/model.so --random 1 --profile                          random inputs, time per layer
  quench run out/model.so --random 1 --device cuda:1                    a library for GPUs, on the second one
  quench run out/model.so --random 1 --key out/modelKey.bin             an encrypted library: asks for the password
  quench run model.onnx --input x=test_data_set_0/input_0.pb            runs the model itself, in the interpreter
  quench run out/speech.so --input frame=frames.npy --steps             frame by frame; states carry over
  quench run out/model.so --random 1 --size batch=8 --threads 2         symbolic dims at chosen sizes
  quench run model.onnx --random 1 --gateway build-farm:7450            imported on the gateway, run here)";

struct RunArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  std::shared_ptr<InputFlags> inputs = std::make_shared<InputFlags>();
  std::string output = ".", format = "text";
  std::string images, class_names, device;
  std::optional<uint64_t> threads;
  bool profile = false, steps = false;
};

// A library or a graph that can be run.
struct Runnable {
  const Graph* graph;  // null for a library
  std::vector<ArtifactTensor> inputs;
  std::vector<std::string> outputs;
  std::vector<ArtifactState> states;
  std::function<absl::StatusOr<std::vector<Tensor>>(const std::vector<Tensor>&)> run;
  std::vector<std::string> class_names = {};  // that the library has
  std::string preprocessing = {};             // JSON that it has, or ""
};

struct Extremes {
  double min = INFINITY, max = -INFINITY, mean = 0;
};

// Absent where the tensor has no numbers.
std::optional<Extremes> ExtremesOf(const Tensor& tensor) {
  if (tensor.size() == 0 || (!IsFloat(tensor.dtype()) && !IsInteger(tensor.dtype())))
    return std::nullopt;
  Extremes result;
  double sum = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double value = tensor.FloatAt(i);
    result.min = std::min(result.min, value);
    result.max = std::max(result.max, value);
    sum += value;
  }
  result.mean = sum / static_cast<double>(tensor.size());
  return result;
}

void PrintOutput(const std::string& name, const Tensor& tensor, const std::string& path) {
  std::string text =
      fmt::format("{}[{}]", DataTypeName(tensor.dtype()), fmt::join(tensor.dims(), ", "));
  if (const auto extremes = ExtremesOf(tensor))
    text += fmt::format("  min {:.6g}  max {:.6g}  mean {:.6g}", extremes->min, extremes->max,
                        extremes->mean);
  fmt::print("{:<24} {}  -> {}\n", name, text, path);
}

nlohmann::json OutputToJson(const std::string& name, const Tensor& tensor,
                            const std::string& path) {
  nlohmann::json json = {{"name", name},
                         {"dtype", std::string(DataTypeName(tensor.dtype()))},
                         {"dims", tensor.dims()},
                         {"file", path}};
  const auto finite = [](double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(fmt::format("{}", value));
  };
  if (const auto extremes = ExtremesOf(tensor)) {
    json["min"] = finite(extremes->min);
    json["max"] = finite(extremes->max);
    json["mean"] = finite(extremes->mean);
  }
  return json;
}

absl::StatusOr<std::vector<std::string>> ClassNamesOf(const RunArgs& args, const Runnable& model) {
  if (args.class_names.empty()) return model.class_names;
  return ReadClassNames(args.class_names);
}

bool HasPicture(const InputFlags& flags) {
  return std::any_of(flags.inputs.begin(), flags.inputs.end(), [](const std::string& text) {
    return IsImageFile(text.substr(text.find('=') + 1));
  });
}

// Preprocessing from --images, or else from the library; absent if neither has any.
absl::StatusOr<std::optional<ImageOptions>> ImagesOf(const RunArgs& args, const Runnable& model) {
  std::string text = args.images;
  if (text.empty()) {
    const auto recorded = nlohmann::json::parse(model.preprocessing, nullptr, false);
    if (recorded.is_object() && recorded.contains(kImagesKey) && recorded[kImagesKey].is_string())
      text = recorded[kImagesKey].get<std::string>();
  }
  if (text.empty()) return std::optional<ImageOptions>();
  QUENCH_ASSIGN_OR_RETURN(ImageOptions images, ParseImageOptions(text));
  return std::optional(images);
}

absl::StatusOr<std::vector<Tensor>> GatherInputs(const RunArgs& args, const Runnable& model) {
  QUENCH_ASSIGN_OR_RETURN(const std::optional<ImageOptions> images, ImagesOf(args, model));
  QUENCH_ASSIGN_OR_RETURN(InputSources sources, SourcesOf(*args.inputs, model.inputs, images));
  sources.graph = model.graph;
  std::map<std::string, int64_t> sizes;
  QUENCH_ASSIGN_OR_RETURN(
      std::vector<Tensor> inputs,
      FillInputs(model.inputs, model.states, sources, InputFlags::kHow, &sizes));
  if (!sizes.empty() && args.format == "text")
    fmt::print("random inputs at {}\n", SizesText(sizes));
  return inputs;
}

// Writes the outputs, and says what they are.
absl::Status WriteOutputs(const RunArgs& args, const Runnable& model,
                          const std::vector<Tensor>& outputs, nlohmann::json& report) {
  std::error_code error;
  std::filesystem::create_directories(args.output, error);
  if (error) return ErrnoStatus(error.value(), "create", args.output);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<std::string> names, ClassNamesOf(args, model));
  const bool text = args.format == "text", wanted = !names.empty() || HasPicture(*args.inputs);
  bool fits = false;  // an output has the classes
  FileNames files(model.outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = model.outputs[i];
    const std::string path =
        (std::filesystem::path(args.output) / (files.Of(name) + ".npy")).string();
    QUENCH_RETURN_IF_ERROR(WriteNpy(outputs[i], path));
    if (text) PrintOutput(name, outputs[i], path);
    report["outputs"].push_back(OutputToJson(name, outputs[i], path));
    if (!wanted || !HasClasses(outputs[i], names)) continue;
    const nlohmann::json best = BestClasses(outputs[i], names);
    if (text) PrintBestClasses(name, best);
    report["outputs"].back()["best"] = best;
    fits = true;
  }
  if (args.class_names.empty() || fits) return absl::OkStatus();
  return InvalidArgument("--class-names: `{}` has {} names, and no output has as many columns",
                         args.class_names, names.size());
}

void AddProfile(const RunArgs& args, std::vector<NodeTiming> timings, nlohmann::json& report) {
  double total = 0;
  for (const NodeTiming& timing : timings) total += timing.seconds;
  std::stable_sort(timings.begin(), timings.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  for (const NodeTiming& timing : timings) {
    report["profile"].push_back(
        {{"node", timing.node}, {"kernel", timing.kernel}, {"us", timing.seconds * 1e6}});
  }
  if (args.format == "json") return;
  fmt::print("{:>10} {:>6}  {:<28} {}\n", "us", "%", "kernel", "node");
  for (const NodeTiming& timing : timings) {
    fmt::print("{:>10.1f} {:>6.1f}  {:<28} {}\n", timing.seconds * 1e6,
               100 * timing.seconds / std::max(total, 1e-12), timing.kernel, timing.node);
  }
  fmt::print("{:>10.1f} {:>6}  total\n", total * 1e6, "100.0");
}

// How often to run: with --steps the first axis of the files that have one more than their input.
absl::StatusOr<int64_t> CountSteps(const RunArgs& args, const Runnable& model,
                                   const std::vector<Tensor>& inputs) {
  if (!args.steps) return 1;
  std::optional<int64_t> steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].rank() != static_cast<int>(model.inputs[i].dims.size()) + 1) continue;
    const int64_t count = inputs[i].dims()[0];
    if (steps && *steps != count) {
      return InvalidArgument("--steps: input `{}` has {} steps, the others have {}",
                             model.inputs[i].name, count, *steps);
    }
    steps = count;
  }
  if (!steps) {
    return InvalidArgument(
        "--steps: no file has a leading axis of steps (one axis more than the model's input)");
  }
  if (*steps == 0) return InvalidArgument("--steps: the axis of steps is empty");
  return *steps;
}

// Element `index` of the first axis.
Tensor StepOf(const Tensor& tensor, int64_t index) {
  std::vector<int64_t> dims(tensor.dims().begin() + 1, tensor.dims().end());
  Tensor step = Tensor::Zeros(tensor.dtype(), std::move(dims));
  const size_t bytes = step.bytes().size();
  if (bytes > 0)
    std::memcpy(step.mutable_bytes(), tensor.bytes().data() + static_cast<size_t>(index) * bytes,
                bytes);
  return step;
}

// One axis more in front. Sizes that differ from step to step have no such form.
absl::StatusOr<Tensor> Stacked(const std::string& name, const std::vector<Tensor>& steps) {
  std::vector<int64_t> dims = steps[0].dims();
  dims.insert(dims.begin(), static_cast<int64_t>(steps.size()));
  Tensor all = Tensor::Zeros(steps[0].dtype(), std::move(dims));
  size_t at = 0;
  for (const Tensor& step : steps) {
    if (step.dims() != steps[0].dims()) {
      return InvalidArgument("--steps: output `{}` is [{}] in one step and [{}] in another", name,
                             fmt::join(steps[0].dims(), ", "), fmt::join(step.dims(), ", "));
    }
    if (!step.bytes().empty())
      std::memcpy(all.mutable_bytes() + at, step.bytes().data(), step.bytes().size());
    at += step.bytes().size();
  }
  return all;
}

// Leaves in `inputs` what the next run would take, and writes the outputs.
absl::Status RunAndWrite(const RunArgs& args, const Runnable& model, std::vector<Tensor>& inputs,
                         nlohmann::json& report) {
  QUENCH_ASSIGN_OR_RETURN(const int64_t steps, CountSteps(args, model, inputs));
  const std::vector<Tensor> given = inputs;
  std::vector<std::vector<Tensor>> results(model.outputs.size());
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; args.steps && i < given.size(); ++i) {
      if (given[i].rank() > static_cast<int>(model.inputs[i].dims.size()))
        inputs[i] = StepOf(given[i], step);
    }
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, model.run(inputs));
    for (const ArtifactState& state : model.states) inputs[state.input] = outputs[state.output];
    for (size_t i = 0; i < outputs.size(); ++i) results[i].push_back(outputs[i]);
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    const bool is_state =
        std::any_of(model.states.begin(), model.states.end(),
                    [&](const ArtifactState& state) { return state.output == i; });
    if (!args.steps || is_state) {
      outputs.push_back(results[i].back());  // what the next call takes
      continue;
    }
    QUENCH_ASSIGN_OR_RETURN(Tensor all, Stacked(model.outputs[i], results[i]));
    outputs.push_back(std::move(all));
  }
  return WriteOutputs(args, model, outputs, report);
}

absl::Status PrintReport(const RunArgs& args, const nlohmann::json& report) {
  if (args.format == "json")
    fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return absl::OkStatus();
}

absl::Status RunArtifact(const RunArgs& args, const StepContext& context) {
  if (AsksForGateway(*args.gateway)) {
    return InvalidArgument(
        "--gateway: a gateway does not return the outputs of libraries; run `{}` locally, without "
        "the option",
        args.model->model);
  }
  QUENCH_RETURN_IF_ERROR(RefuseModelOptions(
      *args.model, fmt::format("`{}` is a compiled library", args.model->model)));
  QUENCH_ASSIGN_OR_RETURN(const ArtifactKey key, KeyOf(*args.key));
  QUENCH_ASSIGN_OR_RETURN(
      const std::unique_ptr<Artifact> artifact,
      Artifact::Open(args.model->model, {static_cast<int>(args.threads.value_or(0)), args.device},
                     key));
  Runnable model{
      nullptr, artifact->inputs(), {}, artifact->states(), [&](const std::vector<Tensor>& inputs) {
        return artifact->Run(inputs, context);
      }};
  for (const ArtifactTensor& output : artifact->outputs()) model.outputs.push_back(output.name);
  model.class_names = artifact->class_names();
  model.preprocessing = artifact->preprocessing();
  QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, GatherInputs(args, model));
  nlohmann::json report = {{"variant", artifact->variant()}, {"device", artifact->device()}};
  if (args.format == "text" && artifact->device() != "cpu")
    fmt::print("on {}\n", artifact->device());
  QUENCH_RETURN_IF_ERROR(RunAndWrite(args, model, inputs, report));
  if (args.profile) {
    QUENCH_ASSIGN_OR_RETURN(std::vector<NodeTiming> timings, artifact->Profile(inputs));
    AddProfile(args, std::move(timings), report);
  }
  return PrintReport(args, report);
}

absl::StatusOr<Graph> GraphHere(const RunArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  return WithBatch(std::move(model.canonical), *args.model, context);
}

absl::Status RunInterpreter(const RunArgs& args, const StepContext& context) {
  if (!args.key->key.empty())
    return InvalidArgument("--key: `{}` is not a compiled library", args.model->model);
  if (!args.device.empty()) {
    return InvalidArgument(
        "--device: `{}` is not a compiled library; the interpreter runs on the CPU",
        args.model->model);
  }
  if (args.threads) {
    return InvalidArgument(
        "--threads: `{}` is not a compiled library; the interpreter uses one thread",
        args.model->model);
  }
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          UsesGateway(*args.gateway)
                              ? ModuleThere({*args.gateway, *args.model}, context)
                              : GraphHere(args, context));
  std::vector<NodeTiming> timings;
  ops::EvaluateOptions options;
  auto last = std::chrono::steady_clock::now();
  if (args.profile) {
    options.on_value = [&](const std::string& name, const Tensor&) {
      const auto now = std::chrono::steady_clock::now();
      timings.push_back({name, "interpreter", std::chrono::duration<double>(now - last).count()});
      last = now;
    };
  }
  Runnable model{
      &graph, InputsOf(graph), {}, ArtifactStatesOf(graph), [&](const std::vector<Tensor>& inputs) {
        return ops::Evaluate(graph, inputs, context, options);
      }};
  for (const ValueId id : graph.outputs) model.outputs.push_back(graph.value(id).name);
  QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, GatherInputs(args, model));
  nlohmann::json report = nlohmann::json::object();
  QUENCH_RETURN_IF_ERROR(RunAndWrite(args, model, inputs, report));
  if (args.profile) AddProfile(args, std::move(timings), report);
  return PrintReport(args, report);
}

}  // namespace

Action DeclareRun(const Options& options) {
  auto args = std::make_shared<RunArgs>();
  AddModelOptions(options, args->model, SizeIs::kOfData);
  options.Describe("MODEL", "Compiled library, model file or IR module");
  AddInputFlags(options, args->inputs);
  AddImageFlag(options, args->images).Needs({"--input"});
  options.Describe(
      "--images",
      "How .png and .jpg inputs are scaled, as `quench calibrate` takes it (default: as "
      "recorded by `quench compile --images`)");
  options.In("Output").Add(
      "--class-names", args->class_names,
      "Names of the classes, one per line (default: those in the library); the "
      "five best are shown",
      "FILE");
  options.AddRule([args] { return SizesProblem(*args->model, args->inputs->random.has_value()); });
  options.In("Output").Add("--output,-o", args->output, "Folder for the outputs, one NAME.npy each",
                           "DIR (default .)");
  options
      .Add("--threads", args->threads, "Number of threads, compiled libraries only",
           "N (default: its target's num-cores, or 1)")
      .Range(1, 1024);
  AddDeviceFlag(options, args->device);
  AddKeyFlags(options, args->key);
  options
      .Flag("--steps", args->steps,
            "Run once for each index of the files' first axis, which the model's inputs do not "
            "have; states carry over from run to run")
      .Needs({"--input"});
  AddFormat(options, args->format);
  options.Flag("--profile", args->profile, "Show the time spent in each layer");
  AddWorkOptions(options, args->gateway);
  options.Examples(kRunExamples);
  return [args](const StepContext& context) -> absl::Status {
    args->inputs->sizes = TakeDataSizes(*args->model);
    QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(args->model->model));
    return kind == FileKind::kArtifact ? RunArtifact(*args, context)
                                       : RunInterpreter(*args, context);
  };
}

}  // namespace quench::cli
