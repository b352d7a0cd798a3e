#include "services/importer/torch/model.h"

#include <algorithm>

#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/ir/metadata.h"

namespace quench::importer {
namespace {

// torch.save of before 1.6: a pickle of this number comes first.
constexpr std::string_view kLegacy("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
constexpr size_t kZipEnd = 1 << 16;

constexpr char kHowToExport[] =
    "import torch\n"
    "torch.export.save(torch.export.export(model.eval(), (example_input,)), \"model.pt2\")";

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Names of a zip archive's files stand at its end.
bool Names(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view text = TextOf(bytes);
  const std::string_view end = text.substr(text.size() - std::min(text.size(), kZipEnd));
  return end.find(name) != std::string_view::npos;
}

absl::Status NoProgram(const std::string& what) {
  return InvalidArgument(
      "{}, without the code that computes the model: export it where that code is, with\n\n{}\n",
      what, kHowToExport);
}

// The contents of an archive of torch.save, by its pickle.
absl::Status DescribeSaved(const TorchArchive& archive) {
  absl::StatusOr<TorchBytes> bytes = archive.Read("data.pkl");
  QUENCH_RETURN_IF_ERROR(bytes.status());
  const auto pickle = ReadPickle(bytes->bytes);
  if (!pickle.ok())
    return NoProgram(fmt::format("the file is a pickled module ({})", MessageOf(pickle.status())));
  return NoProgram("the file is a state dict or other saved tensors");
}

void DescribeInitial(const std::string& input, const Tensor& initial,
                     std::map<std::string, std::string>& metadata) {
  bool uniform = true;
  for (int64_t i = 1; i < initial.size() && uniform; ++i)
    uniform = initial.FloatAt(i) == initial.FloatAt(0);
  if (!uniform) {
    metadata["warning.state " + input] = fmt::format(
        "state `{}` begins with different numbers in its elements, which the module does not keep",
        input);
  } else if (initial.size() > 0 && initial.FloatAt(0) != 0) {
    metadata[kStateInitialKey + input] = fmt::format("{}", initial.FloatAt(0));
  }
}

absl::Status AddOutputs(const std::string& name, const TorchValue& value, TorchProgram& program) {
  if (IsNone(value)) return absl::OkStatus();
  if (const auto* list = std::get_if<std::shared_ptr<TorchList>>(&value)) {
    for (size_t i = 0; i < (*list)->items.size(); ++i)
      QUENCH_RETURN_IF_ERROR(AddOutputs(fmt::format("{}_{}", name, i), (*list)->items[i], program));
    return absl::OkStatus();
  }
  if (const auto* dict = std::get_if<std::shared_ptr<TorchDict>>(&value)) {
    for (const auto& [key, item] : (*dict)->items) {
      const auto* text = std::get_if<std::string>(&key);
      QUENCH_RETURN_IF_ERROR(AddOutputs(text == nullptr ? name : *text, item, program));
    }
    return absl::OkStatus();
  }
  if (const auto* object = std::get_if<std::shared_ptr<TorchObject>>(&value)) {
    const bool named = !(*object)->fields.empty();
    for (size_t i = 0; named && i < (*object)->fields.size(); ++i)
      QUENCH_RETURN_IF_ERROR(AddOutputs((*object)->fields[i], (*object)->state[i], program));
    for (const auto& [field, item] : (*object)->attributes) {
      if (!named) QUENCH_RETURN_IF_ERROR(AddOutputs(field, item, program));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Handle> handle = program.HandleOf(value);
  if (!handle.ok() && std::holds_alternative<CellPtr>(value))
    return Annotate(handle.status(), fmt::format("output `{}`", Printable(name)));
  if (!handle.ok())
    return Unsupported("output `{}` is neither a tensor nor a number, nor a list of these",
                       Printable(name));
  program.b.AddOutput(*handle, name);
  return absl::OkStatus();
}

absl::StatusOr<TorchResult> ReadProgram(const TorchFile& file, const ImportOptions& options,
                                        const std::set<std::string>& written,
                                        TorchProgram& program) {
  return file.kind == TorchKind::kScript ? ReadScript(*file.archive, options, written, program)
                                         : ReadExported(*file.archive, options, written, program);
}

// The values of these names become the outputs, and what they do not need goes.
absl::Status CutAt(const std::vector<std::string>& names, Graph& graph) {
  std::vector<ValueId> cut;
  StatusCollector problems;
  for (const std::string& name : names) {
    const std::optional<ValueId> id = graph.FindValue(name);
    if (id && graph.value(*id).constant == nullptr) {
      cut.push_back(*id);
    } else {
      problems.Add(InvalidArgument("the model is cut at `{}`, which is not a value of it", name));
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  graph.outputs = std::move(cut);
  graph.Compact();
  return absl::OkStatus();
}

bool Calls(const Graph& graph, const std::pair<std::string, std::string>& op) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (node.domain == op.first && node.op == op.second) return true;
    return std::any_of(node.attributes.begin(), node.attributes.end(), [&](const auto& attribute) {
      const auto* body = std::get_if<GraphPtr>(&attribute.second);
      return body != nullptr && Calls(**body, op);
    });
  });
}

absl::Status Finish(const TorchResult& result, const ImportOptions& options, TorchProgram& program,
                    Graph& graph) {
  for (const auto& [name, value] : result.outputs)
    QUENCH_RETURN_IF_ERROR(AddOutputs(name, value, program));
  for (const TorchState& state : result.states) {
    if (state.cell->version == state.version) continue;
    QUENCH_ASSIGN_OR_RETURN(const Handle handle, program.Read(state.cell));
    const std::string input = Printable(state.name);
    program.b.AddOutput(handle, input + "/next");
    graph.metadata[kStateKey + input] = graph.value(graph.outputs.back()).name;
    DescribeInitial(input, state.initial, graph.metadata);
  }
  if (graph.outputs.empty()) return InvalidArgument("the model has no outputs");
  return options.outputs.empty() ? absl::OkStatus() : CutAt(options.outputs, graph);
}

}  // namespace

bool LooksLikeTorch(std::span<const std::byte> bytes) {
  if (TextOf(bytes).starts_with(kLegacy)) return true;
  return LooksLikeZip(bytes) &&
         (Names(bytes, "data.pkl") || Names(bytes, "serialized_exported_program.json") ||
          Names(bytes, "archive_format") || Names(bytes, "constants.pkl"));
}

absl::StatusOr<TorchFile> OpenTorchFile(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> mapping,
                          FileMapping::Open(path));
  if (TextOf(mapping->bytes()).starts_with(kLegacy))
    return NoProgram("the file is a pickle of torch.save");
  TorchFile file;
  QUENCH_ASSIGN_OR_RETURN(file.archive, TorchArchive::Open({mapping->bytes(), mapping}));
  const std::vector<std::string> names = file.archive->Names();
  const bool exported = file.archive->Has("serialized_exported_program.json") ||
                        std::any_of(names.begin(), names.end(), [](const std::string& name) {
                          return name.starts_with("models/") && name.ends_with(".json");
                        });
  const bool script = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("code/") && name.ends_with(".py");
  });
  if (file.archive->Has("byteorder")) {
    QUENCH_ASSIGN_OR_RETURN(const TorchBytes order, file.archive->Read("byteorder"));
    if (order.text().starts_with("big"))
      return Unsupported("the archive was written on a big-endian machine");
  }
  if (!exported && !script) {
    if (file.archive->Has("data.pkl")) return DescribeSaved(*file.archive);
    if (std::any_of(names.begin(), names.end(),
                    [](const std::string& name) { return name.starts_with("data/aotinductor"); }))
      return Unsupported("the archive has compiled code of PyTorch alone, no graph");
    return InvalidArgument("the archive has neither a graph of torch.export nor TorchScript code");
  }
  file.kind = exported ? TorchKind::kExported : TorchKind::kScript;
  return file;
}

// Sizes of an input that the model was not made for: it may have decided by them.
static void WarnOfSizes(const DeclaredInput& declared, const GraphInput& input, Graph& graph) {
  const Type& type = input.type;
  if (!declared.dims) return;
  for (const std::string& size : input.untied) {
    graph.metadata["warning.dim " + Printable(size)] =
        fmt::format("size `{}` of input `{}` is not tied to those of others: a run takes any",
                    Printable(size), Printable(declared.name));
  }
  for (size_t axis = 0; axis < std::min(declared.dims->size(), type.dims.size()); ++axis) {
    const DeclaredDim& dim = (*declared.dims)[axis];
    const Bounds given = graph.symbols->BoundsOf(type.dims[axis]);
    if (dim.size >= 0 || (given.min >= dim.bounds.min && given.max <= dim.bounds.max)) continue;
    const std::string most = dim.bounds.max == kUnbounded ? "" : fmt::format("{}", dim.bounds.max);
    graph.metadata["warning.dim " + Printable(dim.name)] =
        fmt::format("dim `{}` was exported for sizes {}..{}, others are given", Printable(dim.name),
                    dim.bounds.min, most);
  }
}

absl::Status AddTorchInputs(const ImportOptions& options, TorchProgram& program,
                            std::vector<TorchInput>& inputs) {
  std::vector<DeclaredInput> declared;
  std::set<std::string> names;
  for (const TorchInput& input : inputs) {
    names.insert(input.declared.name);
    if (!options.freeze_params.contains(input.declared.name)) declared.push_back(input.declared);
  }
  Graph& graph = program.b.graph();
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<GraphInput> resolved,
      ResolveInputs(std::move(declared), names, false, options, *graph.symbols));
  program.b.probe().SetSymbols(*graph.symbols);
  size_t next = 0;
  for (TorchInput& input : inputs) {
    const auto frozen = options.freeze_params.find(input.declared.name);
    if (frozen != options.freeze_params.end()) {
      input.handle = program.b.AddConstant(input.declared.name, frozen->second);
      continue;
    }
    WarnOfSizes(input.declared, resolved[next], graph);
    input.handle = program.b.AddInput(resolved[next++]);
  }
  return absl::OkStatus();
}

absl::StatusOr<TorchGraph> ReadTorchGraph(const TorchFile& file, const ImportOptions& options,
                                          const FindConversion& find, WeightWriter* weights,
                                          const StepContext& context) {
  std::set<std::string> written;
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    TorchGraph result;
    result.graph.name = "main";
    result.graph.stage = Stage::kImported;
    result.graph.metadata["producer"] =
        file.kind == TorchKind::kScript ? "TorchScript" : "torch.export";
    GraphBuilder builder(result.graph, find);
    TorchProgram program(builder, context);
    absl::StatusOr<TorchResult> read = ReadProgram(file, options, written, program);
    // Behind an operator that is not known little else is.
    if (!program.unsupported.empty() && (options.outputs.empty() || !read.ok())) {
      for (auto& [key, op] : program.unsupported) result.unsupported.push_back(std::move(op));
      return result;
    }
    QUENCH_RETURN_IF_ERROR(read.status());
    bool settled = true;
    for (const TorchState& state : read->states) {
      if (state.cell->version != state.version) settled &= !written.insert(state.name).second;
    }
    if (!settled) continue;
    QUENCH_RETURN_IF_ERROR(Finish(*std::move(read), options, program, result.graph));
    for (auto& [key, op] : program.unsupported) {
      if (Calls(result.graph, key)) result.unsupported.push_back(std::move(op));
    }
    if (!result.unsupported.empty()) return result;
    if (weights != nullptr) QUENCH_RETURN_IF_ERROR(builder.StoreWeights(*weights));
    return result;
  }
  return Internal("which tensors the model writes to changes from one reading to the next");
}

}  // namespace quench::importer
