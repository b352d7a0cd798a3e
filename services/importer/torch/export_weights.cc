// Weights of torch.export's archives: files of raw numbers with a JSON that describes them, or pickles of torch.save.
#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/export_schema.h"
#include "services/importer/torch/pickle.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;
using ExportWeights = std::map<std::string, Tensor>;

absl::StatusOr<std::vector<int64_t>> ReadInts(const Json& meta, const char* name) {
  std::vector<int64_t> values;
  const Json* list = ExportMember(meta, name);
  if (list == nullptr || !list->is_array()) return InvalidArgument("has no {}", name);
  for (const Json& item : *list) {
    const Json* number = ExportMember(item, "as_int");
    if (number == nullptr || !number->is_number_integer())
      return InvalidArgument("has {} that are not numbers", name);
    values.push_back(number->get<int64_t>());
  }
  return values;
}

absl::StatusOr<Tensor> RawTensor(const Json& meta, const TorchBytes& bytes) {
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, ExportDataType(ExportMember(meta, "dtype")));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ReadInts(meta, "sizes"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, ReadInts(meta, "strides"));
  int64_t offset = 0;
  if (const Json* begin = ExportMember(meta, "storage_offset")) {
    const Json* number = ExportMember(*begin, "as_int");
    if (number != nullptr && number->is_number_integer()) offset = number->get<int64_t>();
  }
  return StridedTensor(dtype, bytes, offset, dims, strides);
}

// `torch.save` of a dict, or of one tensor, in an archive of its own.
absl::Status AddPickled(const TorchArchive& archive, const std::string& name,
                        ExportWeights& weights) {
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes bytes, archive.Read(name));
  if (bytes.bytes.empty()) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const TorchArchive> inner,
                          TorchArchive::Open(bytes));
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes pickle, inner->Read("data.pkl"));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const PickleFile> file, ReadPickle(pickle.bytes));
  const Pickled& root = file->root();
  if (!root.Is(Pickled::Kind::kDict)) return InvalidArgument("`{}` has no dict of tensors", name);
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    if (!root.items[i]->Is(Pickled::Kind::kText) || !IsTensor(*root.items[i + 1])) continue;
    absl::StatusOr<TorchTensor> tensor = ReadTensor(
        *root.items[i + 1], [&](const std::string& key) { return inner->Read("data/" + key); });
    if (!tensor.ok())
      return Annotate(tensor.status(), fmt::format("`{}`", Printable(root.items[i]->text)));
    weights.emplace(root.items[i]->text, std::move(tensor->tensor));
  }
  return absl::OkStatus();
}

// {"config": {"l.weight": {"path_name": "weight_0", "tensor_meta": {...}}}}
absl::Status AddConfigured(const TorchArchive& archive, const std::string& config,
                           ExportWeights& weights) {
  const std::string folder = config.substr(0, config.rfind('/') + 1);
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes text, archive.Read(config));
  const Json json = Json::parse(text.text(), nullptr, false);
  const Json* entries = ExportMember(json, "config");
  if (entries == nullptr || !entries->is_object())
    return InvalidArgument("`{}` is not a configuration of weights", Printable(config));
  for (const auto& [name, entry] : entries->items()) {
    const std::string path = folder + ExportText(ExportMember(entry, "path_name"));
    const Json* meta = ExportMember(entry, "tensor_meta");
    const Json* pickled = ExportMember(entry, "use_pickle");
    if (meta == nullptr || (pickled != nullptr && *pickled == true)) continue;  // no tensor
    QUENCH_ASSIGN_OR_RETURN(const TorchBytes bytes, archive.Read(path));
    absl::StatusOr<Tensor> tensor = RawTensor(*meta, bytes);
    if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("`{}`", Printable(name)));
    weights.emplace(name, *std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, Tensor>> ReadExportWeights(const TorchArchive& archive) {
  ExportWeights weights;
  for (const std::string& name : archive.Names()) {
    const bool config =
        name.ends_with("_weights_config.json") || name.ends_with("_constants_config.json");
    if (config && name.starts_with("data/"))
      QUENCH_RETURN_IF_ERROR(AddConfigured(archive, name, weights));
  }
  for (const char* name :
       {"data/weights/model.pt", "data/constants/model.pt", "serialized_state_dict.pt",
        "serialized_constants.pt", "serialized_state_dict.json", "serialized_constants.json"}) {
    if (archive.Has(name))
      QUENCH_RETURN_IF_ERROR(Annotate(AddPickled(archive, name, weights), name));
  }
  return weights;
}

}  // namespace quench::importer
