#include "services/analyser/edit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npz.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kEditExamples[] = R"(Examples:
  quench edit model.onnx -e 'remove dropout_3' -o small.onnx        readers of its output read its input instead
  quench edit model.onnx -e 'replace relu1 { %r = HardSwish(%conv1) }' -o m.onnx
  quench edit model.onnx -e 'input %features/out' -e 'outputs %logits' -o head.onnx    cuts out a part
  quench edit model.onnx -e 'constant %fc.weight = file "fc.npy"' -o tuned.qir         replaces a weight
  quench edit model.onnx --script edits.txt -o edited.qir            docs/editing.md describes the language
  quench ir model.onnx -o m.ir.txt; vi m.ir.txt; quench edit m.ir.txt -o edited.onnx   edits the IR as text)";

struct EditArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::vector<std::string> statements;
  std::string script, output, format = "text";
  bool force = false;
  bool external_weights = false;
};

absl::StatusOr<analyser::EditScript> ScriptOf(const EditArgs& args) {
  std::string text = fmt::format("{}", fmt::join(args.statements, "\n"));
  if (!args.script.empty()) {
    std::error_code error;
    const uint64_t size = fs::file_size(args.script, error);
    if (!error && size > analyser::kMostEditBytes) {
      return InvalidArgument("script `{}` has {} bytes; the limit is {}", args.script, size,
                             analyser::kMostEditBytes);
    }
    QUENCH_ASSIGN_OR_RETURN(text, ReadFile(args.script));
  }
  return analyser::ParseEditScript(std::move(text), args.script.empty() ? "--edit" : args.script);
}

// Files stand beside the script, or else in the working directory.
absl::StatusOr<EditFiles> FilesFor(const EditArgs& args, const analyser::EditScript& script) {
  const fs::path folder = fs::path(args.script).parent_path();
  EditFiles files;
  std::map<std::string, std::map<std::string, Tensor>> archives;
  StatusCollector problems;
  for (const auto& [file, array] : FilesOf(script)) {
    const std::string path = folder / file;
    if (array.empty()) {
      absl::StatusOr<Tensor> tensor = ReadTensorFile(path);
      problems.Add(tensor.status());
      if (tensor.ok()) files[{file, array}] = *std::move(tensor);
      continue;
    }
    if (!archives.contains(path)) {
      absl::StatusOr<std::map<std::string, Tensor>> arrays = ReadNpz(path);
      problems.Add(arrays.status());
      if (!arrays.ok()) continue;
      archives[path] = *std::move(arrays);
    }
    const auto found = archives[path].find(array);
    if (found != archives[path].end()) {
      files[{file, array}] = found->second;
      continue;
    }
    std::vector<std::string> names;
    for (const auto& [name, tensor] : archives[path]) names.push_back(name);
    problems.Add(absl::NotFoundError(
        fmt::format("`{}` has no array `{}`, it has {}", path, array, fmt::join(names, ", "))));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return files;
}

absl::StatusOr<analyser::Edited> EditHere(const EditArgs& args, const analyser::EditScript& script,
                                          const EditFiles& files, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          WithBatch(std::move(model.canonical), *args.model, context));
  return analyser::EditGraph(
      graph, script,
      [&](const std::string& file, const std::string& array) -> absl::StatusOr<Tensor> {
        return files.at({file, array});
      },
      context);
}

absl::Status RunEdit(const EditArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(KindOf(args.model->model).status());
  if (!args.output.empty() && !args.force)
    QUENCH_RETURN_IF_ERROR(RefuseExisting(args.output, args.external_weights));
  QUENCH_ASSIGN_OR_RETURN(const analyser::EditScript script, ScriptOf(args));
  QUENCH_ASSIGN_OR_RETURN(const EditFiles files, FilesFor(args, script));
  QUENCH_ASSIGN_OR_RETURN(const analyser::Edited edited,
                          UsesGateway(*args.gateway)
                              ? EditThere({*args.gateway, *args.model, script.text, files}, context)
                              : EditHere(args, script, files, context));
  if (args.output.ends_with(".onnx")) {
    QUENCH_RETURN_IF_ERROR(importer::ExportOnnx(edited.graph, args.output, context));
  } else if (!args.output.empty()) {
    QUENCH_RETURN_IF_ERROR(WriteModule(edited.graph, args.output, args.external_weights));
  }
  fmt::print("{}", args.format == "json" ? analyser::ToJson(edited.report)
                                         : analyser::ToTable(edited.report));
  return absl::OkStatus();
}

}  // namespace

Action DeclareEdit(const Options& options) {
  auto args = std::make_shared<EditArgs>();
  AddModelOptions(options, args->model);
  options.Add("--edit,-e", args->statements, "Edit statement; may be repeated", "STATEMENT");
  options.Add("--script", args->script, "File of edit statements", "FILE").Excludes({"--edit"});
  options.In("Output").Add(
      "--output,-o", args->output,
      "File to write: ONNX if it ends in .onnx, IR text if in .txt, else a binary IR module",
      "FILE");
  AddWeightsFlag(options, args->external_weights);
  options.AddRule([args] { return WeightsProblem(args->output, args->external_weights); });
  options.In("Output")
      .Flag("--force,-f", args->force, "Overwrite an existing file")
      .Needs({"--output"});
  AddFormat(options, args->format);
  AddWorkOptions(options, args->gateway);
  options.Examples(kEditExamples);
  return [args](const StepContext& context) { return RunEdit(*args, context); };
}

}  // namespace quench::cli
