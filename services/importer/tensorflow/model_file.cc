#include "services/importer/tensorflow/model_file.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/graph/wire_scanner.h"

namespace quench::importer {
namespace {

constexpr char kVariables[] = "variables/variables";
constexpr size_t kMaxTextBytes = size_t{512} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
constexpr int kMaxTextDepth = 100;

enum class Kind { kNone, kGraph, kSavedModel, kTextGraph, kTextSavedModel };

// The first word of a text, behind blanks and comments.
std::string_view FirstWord(std::string_view text) {
  while (!text.empty()) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    text.remove_prefix(begin);
    if (text[0] != '#') break;
    const size_t line = text.find('\n');
    if (line == std::string_view::npos) return {};
    text.remove_prefix(line);
  }
  const size_t end = text.find_first_of(" \t\r\n:{<");
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

// By the first bytes: fields of the two messages have other wire types.
Kind KindOf(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view word = FirstWord(text.substr(0, 4096));
  if (word == "node" || word == "versions" || word == "library") return Kind::kTextGraph;
  if (word == "saved_model_schema_version" || word == "meta_graphs") return Kind::kTextSavedModel;
  if (text.empty()) return Kind::kNone;
  // node, library, versions: messages; schema version: a number.
  if (text[0] == '\x0a' || text[0] == '\x12' || text[0] == '\x22') return Kind::kGraph;
  return text[0] == '\x08' ? Kind::kSavedModel : Kind::kNone;
}

class TextErrors final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (first_.empty())
      first_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, Printable(message));
  }
  const std::string& first() const { return first_; }

 private:
  std::string first_;
};

absl::Status ParseInto(std::span<const std::byte> bytes, bool is_text,
                       google::protobuf::Message& message) {
  if (!is_text) {
    QUENCH_ASSIGN_OR_RETURN(const std::string skeleton,
                            ScanMessage(bytes, *message.GetDescriptor()));
    if (message.ParseFromString(skeleton)) return absl::OkStatus();
    return InvalidArgument("its messages do not parse");
  }
  if (bytes.size() > kMaxTextBytes)
    return absl::ResourceExhaustedError(
        fmt::format("a text of {} bytes, at most {} are read", bytes.size(), kMaxTextBytes));
  TextErrors errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxTextDepth);
  parser.AllowUnknownField(true);
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  if (parser.Parse(&stream, &message)) return absl::OkStatus();
  return InvalidArgument("{}", errors.first());
}

absl::Status CheckNodes(const tf::GraphDef& graph) {
  StatusCollector problems;
  std::unordered_set<std::string_view> names;
  if (graph.node_size() == 0) problems.Add(InvalidArgument("the graph has no nodes"));
  for (int i = 0; i < graph.node_size(); ++i) {
    const tf::NodeDef& node = graph.node(i);
    if (node.name().empty() || node.op().empty())
      problems.Add(
          InvalidArgument("node {} has no {}", i, node.name().empty() ? "name" : "operator"));
    else if (!names.insert(node.name()).second)
      problems.Add(InvalidArgument("two nodes are called `{}`", Printable(node.name())));
  }
  return problems.Finish();
}

// The graph for serving, or the only one.
absl::Status TakeMetaGraph(tf::SavedModel& model, TensorflowFile& file) {
  tf::MetaGraphDef* chosen = nullptr;
  for (tf::MetaGraphDef& meta : *model.mutable_meta_graphs()) {
    const auto& tags = meta.meta_info_def().tags();
    const bool serves = std::find(tags.begin(), tags.end(), "serve") != tags.end();
    if (chosen == nullptr || (serves && tags.size() == 1)) chosen = &meta;
  }
  if (chosen == nullptr) return InvalidArgument("the saved model has no graphs");
  file.graph = std::move(*chosen->mutable_graph_def());
  file.saver = std::move(*chosen->mutable_saver_def());
  for (auto& [name, signature] : *chosen->mutable_signature_def())
    file.signatures[name] = std::move(signature);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(const ExternalFiles::File& file) {
  if (file.size > kMaxIndexBytes)
    return absl::ResourceExhaustedError(
        fmt::format("{} bytes, at most {}", file.size, kMaxIndexBytes));
  std::string text(file.size, '\0');
  QUENCH_RETURN_IF_ERROR(ReadFileAt(file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

bool HasVariables(const tf::GraphDef& graph) {
  const auto is_variable = [](const tf::NodeDef& node) {
    return node.op() == "VarHandleOp" || node.op() == "VariableV2" || node.op() == "Variable";
  };
  return std::any_of(graph.node().begin(), graph.node().end(), is_variable);
}

std::shared_ptr<ExternalFiles> FilesBeside(const std::filesystem::path& path,
                                           const ImportOptions& options) {
  if (options.external_files) return std::make_shared<ExternalFiles>(*options.external_files);
  return std::make_shared<ExternalFiles>(path.parent_path());
}

absl::StatusOr<CheckpointIndex> ReadIndex(ExternalFiles& files) {
  const std::string location = fmt::format("{}.index", kVariables);
  QUENCH_ASSIGN_OR_RETURN(const ExternalFiles::File file, files.Open(location));
  absl::StatusOr<std::string> bytes = ReadWhole(file);
  absl::StatusOr<CheckpointIndex> index =
      bytes.ok() ? ReadCheckpointIndex(std::as_bytes(std::span(*bytes))) : bytes.status();
  if (!index.ok()) return Annotate(index.status(), fmt::format("`{}`", location));
  return index;
}

}  // namespace

bool LooksLikeTensorflow(std::span<const std::byte> bytes) {
  const Kind kind = KindOf(bytes);
  if (kind == Kind::kTextGraph || kind == Kind::kTextSavedModel) return true;
  if (kind == Kind::kSavedModel) {
    tf::SavedModel model;
    return ParseInto(bytes, false, model).ok() && model.meta_graphs_size() > 0;
  }
  tf::GraphDef graph;
  return kind == Kind::kGraph && ParseInto(bytes, false, graph).ok() && graph.node_size() > 0 &&
         !graph.node(0).op().empty();
}

absl::StatusOr<TensorflowFile> OpenTensorflowFile(const std::filesystem::path& path,
                                                  const ImportOptions& options) {
  TensorflowFile file;
  QUENCH_ASSIGN_OR_RETURN(file.mapping, FileMapping::Open(path));
  const std::string where =
      fmt::format("`{}` is not a readable TensorFlow model", path.filename().string());
  const Kind kind = KindOf(file.mapping->bytes());
  const bool is_text = kind == Kind::kTextGraph || kind == Kind::kTextSavedModel;
  file.is_saved_model = kind == Kind::kSavedModel || kind == Kind::kTextSavedModel;
  if (file.is_saved_model) {
    tf::SavedModel model;
    QUENCH_RETURN_IF_ERROR(Annotate(ParseInto(file.mapping->bytes(), is_text, model), where));
    QUENCH_RETURN_IF_ERROR(Annotate(TakeMetaGraph(model, file), where));
  } else {
    QUENCH_RETURN_IF_ERROR(Annotate(ParseInto(file.mapping->bytes(), is_text, file.graph), where));
  }
  QUENCH_RETURN_IF_ERROR(Annotate(CheckNodes(file.graph), where));
  if (!file.is_saved_model || !HasVariables(file.graph)) return file;
  file.external = FilesBeside(path, options);
  QUENCH_ASSIGN_OR_RETURN(CheckpointIndex index, ReadIndex(*file.external));
  const int32_t shards = index.shards;
  const auto open = [files = file.external, shards](int32_t shard) {
    return files->Open(ShardLocation(kVariables, shard, shards));
  };
  file.checkpoint = std::make_shared<Checkpoint>(std::move(index), open);
  return file;
}

absl::StatusOr<std::vector<std::string>> TensorflowLocations(const std::filesystem::path& path,
                                                             const ImportOptions& options) {
  std::vector<std::string> locations;
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> mapping,
                          FileMapping::Open(path));
  const Kind kind = KindOf(mapping->bytes());
  if (kind != Kind::kSavedModel && kind != Kind::kTextSavedModel) return locations;
  tf::SavedModel model;
  TensorflowFile file;
  QUENCH_RETURN_IF_ERROR(ParseInto(mapping->bytes(), kind == Kind::kTextSavedModel, model));
  QUENCH_RETURN_IF_ERROR(TakeMetaGraph(model, file));
  if (!HasVariables(file.graph)) return locations;
  locations.push_back(fmt::format("{}.index", kVariables));
  const std::shared_ptr<ExternalFiles> files = FilesBeside(path, options);
  QUENCH_ASSIGN_OR_RETURN(const CheckpointIndex index, ReadIndex(*files));
  for (int32_t i = 0; i < index.shards; ++i)
    locations.push_back(ShardLocation(kVariables, i, index.shards));
  return locations;
}

}  // namespace quench::importer
