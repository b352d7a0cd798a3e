#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/ir/symbols_spelling.h"
#include "common/runner/open_sizes.h"
#include "services/analyser/parameters.h"
#include "services/cli/colour.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/library_text.h"
#include "services/cli/model_source.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kShowExamples[] = R"(Examples:
  quench show model.onnx                 inputs, outputs, size, and the commands to try next
  quench show out/model.so               the same for a compiled library
  quench show calibration.stats          how many samples and values
  quench show model.tflite --format json)";

struct ShowArgs {
  std::string file;
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  std::string format = "text";
};

// Words of a shell are quoted only where they must be.
std::string Word(const std::string& text) {
  const bool plain = text.find_first_of(" '\"$`\\*?[]{}()<>|&;~#") == std::string::npos;
  if (plain && !text.empty()) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string Bytes(double bytes) {
  return bytes < 1e5 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} MB", bytes / 1e6);
}

struct Suggestion {
  std::string command, effect;
};

void PrintNext(const std::vector<Suggestion>& suggestions) {
  size_t width = 0;
  for (const Suggestion& each : suggestions) width = std::max(width, each.command.size());
  fmt::print("\n{}\n", Heading("Next:", stdout));
  for (const Suggestion& each : suggestions)
    fmt::print("  {:<{}}  {}\n", each.command, std::min<size_t>(width, 70), each.effect);
}

// --size for each size of an input that has no usual value.
std::string SizeOptions(const Graph& graph) {
  std::string options;
  for (SymbolId id = 0; id < graph.symbols->size(); ++id) {
    const Symbol& symbol = graph.symbols->at(id);
    const auto* axis = std::get_if<InputAxis>(&symbol.definition);
    if (axis == nullptr || axis->axis == 0) continue;
    options += fmt::format(" --size {}=N", Word(symbol.name));
  }
  return options;
}

bool IsPicture(const Graph& graph, ValueId id) {
  const Type& type = graph.value(id).type;
  if (!type.ranked || type.rank() != 4) return false;
  const auto channels = [&](int axis) {
    const Dim dim = type.dims[static_cast<size_t>(axis)];
    return dim.is_static() && (dim.value() == 1 || dim.value() == 3);
  };
  return channels(1) || channels(3);
}

nlohmann::json TypesOf(const Graph& graph, const std::vector<ValueId>& ids) {
  nlohmann::json list = nlohmann::json::array();
  for (const ValueId id : ids) {
    list.push_back(
        {{"name", graph.value(id).name}, {"type", TypeText(graph.value(id).type, *graph.symbols)}});
  }
  return list;
}

nlohmann::json FactsOf(const Graph& graph, const std::string& file, bool module) {
  int64_t numbers = 0, bytes = 0;
  for (const Value& value : graph.values) {
    if (value.constant == nullptr) continue;
    numbers += value.constant->tensor.size();
    bytes += static_cast<int64_t>(value.constant->tensor.bytes().size());
  }
  std::map<std::string, int64_t> operators;
  for (const Node& node : graph.nodes) ++operators[node.op];
  nlohmann::json facts = {{"kind", module ? "IR module" : "model"},
                          {"name", graph.name},
                          {"nodes", graph.nodes.size()},
                          {"operators", operators},
                          {"constants", numbers},
                          {"constant_bytes", bytes},
                          {"inputs", TypesOf(graph, graph.inputs)},
                          {"outputs", TypesOf(graph, graph.outputs)},
                          {"metadata", graph.metadata}};
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (!error) facts["bytes"] = size;
  return facts;
}

void PrintModel(const std::string& file, const nlohmann::json& facts) {
  const std::string producer = facts.at("metadata").value("producer", "");
  fmt::print("{}: {}{}{}\n", file, facts.at("kind").get<std::string>(),
             producer.empty() ? "" : " by " + producer,
             facts.contains("bytes") ? ", " + Bytes(facts.at("bytes").get<double>()) : "");
  const char* name = "inputs";
  for (const char* list : {"inputs", "outputs"}) {
    name = list;
    for (const nlohmann::json& each : facts.at(list)) {
      fmt::print("  {:<10} {}: {}\n", name, each.at("name").get<std::string>(),
                 each.at("type").get<std::string>());
      name = "";
    }
  }
  std::vector<std::pair<int64_t, std::string>> operators;
  for (const auto& [op, count] : facts.at("operators").items())
    operators.emplace_back(-count.get<int64_t>(), op);
  std::sort(operators.begin(), operators.end());
  constexpr size_t kShown = 6;
  std::string mix;
  for (size_t i = 0; i < std::min(operators.size(), kShown); ++i)
    mix += fmt::format("{}{} {}", i > 0 ? ", " : "", -operators[i].first, operators[i].second);
  if (operators.size() > kShown)
    mix += fmt::format(", and {} kinds more", operators.size() - kShown);
  fmt::print("  {:<10} {}: {}\n", "nodes", facts.at("nodes").get<int64_t>(), mix);
  fmt::print("  {:<10} {} numbers, {}\n", "constants", facts.at("constants").get<int64_t>(),
             Bytes(facts.at("constant_bytes").get<double>()));
}

absl::Status ShowModel(const ShowArgs& args, FileKind kind, const StepContext& context) {
  ModelOptions options;
  options.model = args.file;
  absl::StatusOr<importer::Imported> model = LoadModel(options, context);
  if (!model.ok()) return model.status();
  const Graph& graph = model->canonical;
  const nlohmann::json facts = FactsOf(graph, args.file, kind != FileKind::kModel);
  if (args.format == "json") {
    fmt::print("{}\n", facts.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return absl::OkStatus();
  }
  PrintModel(args.file, facts);
  const std::string file = Word(args.file), sizes = SizeOptions(graph);
  std::vector<Suggestion> next = {
      {fmt::format("quench compile {} -o out", file), "a native library for this machine"},
      {fmt::format("quench analyse {}{} --report page.html", file, sizes),
       "layers, parameters, memory, as a page"},
      {fmt::format("quench run {}{} --random 1", file, sizes), "by the interpreter"}};
  if (graph.inputs.size() == 1 && IsPicture(graph, graph.inputs[0])) {
    next.push_back({fmt::format("quench run {} --images imagenet --input {}=photo.jpg", file,
                                Word(graph.value(graph.inputs[0]).name)),
                    "on a picture"});
  }
  PrintNext(next);
  return absl::OkStatus();
}

absl::Status ShowLibrary(const ShowArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(const nlohmann::json description,
                          DescribeLibraryFile(args.file, *args.key));
  if (args.format == "json") {
    fmt::print("{}\n", description.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return absl::OkStatus();
  }
  PrintLibraryFile(args.file, description);
  if (description.value("kind", "") != "shared library") return absl::OkStatus();
  const std::string file = Word(args.file);
  PrintNext(
      {{fmt::format("quench run {} --random 1 -o result", file), "on random inputs"},
       {fmt::format("quench bench {}", file), "how fast is it?"},
       {fmt::format("quench verify MODEL {}", file), "does it compute what its model says?"}});
  return absl::OkStatus();
}

absl::StatusOr<bool> IsStatistics(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return false;
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file, FileMapping::Open(path));
  const auto head = file->bytes().first(std::min<size_t>(file->bytes().size(), 64));
  return quantizer::IsStatistics({reinterpret_cast<const char*>(head.data()), head.size()});
}

absl::Status ShowStatistics(const ShowArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(const quantizer::Statistics statistics,
                          quantizer::ReadStatistics(args.file));
  if (args.format == "json") {
    fmt::print("{}\n", nlohmann::json({{"kind", "statistics"},
                                       {"samples", statistics.samples},
                                       {"values", statistics.values.size()}})
                           .dump(2));
    return absl::OkStatus();
  }
  fmt::print("{}: statistics of {} values over {} samples\n", args.file, statistics.values.size(),
             statistics.samples);
  const std::string file = Word(args.file);
  PrintNext({{fmt::format("quench quantize MODEL -c {}", file), "a model of 8-bit integers"},
             {fmt::format("quench calibrate {}", file), "range and histogram of each value"}});
  return absl::OkStatus();
}

absl::Status RunShow(const ShowArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const bool statistics, IsStatistics(args.file));
  if (statistics) return ShowStatistics(args);
  QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(args.file));
  return kind == FileKind::kArtifact ? ShowLibrary(args) : ShowModel(args, kind, context);
}

}  // namespace

Action DeclareShow(const Options& options) {
  auto args = std::make_shared<ShowArgs>();
  options
      .Add("FILE", args->file,
           "Model, IR module, compiled library, modelKey.bin or calibration statistics", "FILE")
      .Required();
  AddKeyFlags(options, args->key);
  AddFormat(options, args->format);
  options.Examples(kShowExamples);
  return [args](const StepContext& context) { return RunShow(*args, context); };
}

}  // namespace quench::cli
