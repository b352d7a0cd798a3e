#include "common/runner/samples.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/ir/npz.h"
#include "common/runner/inputs.h"
#include "common/runner/unpack.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxItems = 10'000'000;

// A file per input; samples are its rows in turn.
struct Item {
  std::vector<fs::path> files;
  bool own_folder = false;  // that of the sample
  int64_t samples = 0;
};

bool IsTensorFile(const fs::path& path) {
  return path.extension() == ".npy" || path.extension() == ".pb" || path.extension() == ".npz";
}
bool IsSampleFile(const fs::path& path) { return IsTensorFile(path) || IsImageFile(path); }

std::string Describe(DataType dtype, std::span<const int64_t> dims) {
  return fmt::format("{}[{}]", DataTypeName(dtype), fmt::join(dims, ", "));
}

std::string Describe(const ArtifactTensor& input) {
  std::vector<std::string> dims;
  for (const ArtifactDim& dim : input.dims) {
    dims.push_back(dim.value >= 0 ? std::to_string(dim.value)
                                  : fmt::format("{}={}..{}", dim.symbol, dim.min, dim.max));
  }
  return fmt::format("{}[{}]", DataTypeName(input.dtype), fmt::join(dims, ", "));
}

bool Fits(int64_t size, const ArtifactDim& dim) { return size >= dim.min && size <= dim.max; }

// How many samples an array of these dims holds; 0 if it does not fit the input.
int64_t SamplesIn(std::span<const int64_t> dims, const ArtifactTensor& input) {
  const std::vector<ArtifactDim>& wanted = input.dims;
  const auto fit = [&](std::span<const int64_t> got, size_t from) {
    if (got.size() != wanted.size() - from) return false;
    for (size_t i = 0; i < got.size(); ++i) {
      if (!Fits(got[i], wanted[i + from])) return false;
    }
    return true;
  };
  if (fit(dims, 0)) return 1;
  if (wanted.empty()) return 0;
  if (Fits(1, wanted[0]) && fit(dims, 1)) return 1;
  const int64_t rows = wanted[0].value;
  if (rows <= 0 || dims.empty() || !fit(dims.subspan(1), 1)) return 0;
  return dims[0] % rows == 0 ? dims[0] / rows : 0;
}

class FileSamples final : public Samples {
 public:
  // Messages name files relative to `root`.
  FileSamples(fs::path root, std::span<const ArtifactTensor> inputs, SampleFormat format)
      : root_(std::move(root)), inputs_(inputs.begin(), inputs.end()), format_(std::move(format)) {}

  std::string Shown(const fs::path& path) const { return path.lexically_relative(root_).string(); }

  absl::Status Add(std::vector<fs::path> files, bool own_folder) {
    Item item{std::move(files), own_folder, 0};
    StatusCollector problems;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const absl::StatusOr<int64_t> samples = Look(item.files[i], i);
      problems.Add(samples.status());
      if (!samples.ok()) continue;
      if (i > 0 && problems.ok() && *samples != item.samples) {
        problems.Add(InvalidArgument("`{0}` has {1} samples of {6} `{2}`, `{3}` {4} of {6} `{5}`",
                                     Shown(item.files[i]), *samples, inputs_[i].name,
                                     Shown(item.files[0]), item.samples, inputs_[0].name,
                                     format_.what));
      }
      item.samples = *samples;
    }
    QUENCH_RETURN_IF_ERROR(problems.Finish());
    first_.push_back(count_);
    count_ += item.samples;
    items_.push_back(std::move(item));
    return absl::OkStatus();
  }

  int64_t count() const override { return count_; }

  absl::StatusOr<std::vector<Tensor>> Read(int64_t sample) const override {
    const auto [item, row] = Find(sample);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      QUENCH_ASSIGN_OR_RETURN(Tensor tensor, ReadOne(*item, i, row));
      const auto rank = static_cast<int>(inputs_[i].dims.size());
      std::vector<int64_t> dims = tensor.dims();
      // The first axis may be left out where it has size 1; images always have one.
      if (tensor.rank() + 1 == rank) dims.insert(dims.begin(), 1);
      if (tensor.rank() == rank + 1) dims.erase(dims.begin());
      tensors.push_back(tensor.Reshaped(std::move(dims)));
    }
    return tensors;
  }

  std::string NameOf(int64_t sample) const override {
    const auto [item, row] = Find(sample);
    const std::string name =
        "`" + Shown(item->own_folder ? item->files[0].parent_path() : item->files[0]) + "`";
    return item->samples == 1 ? name : fmt::format("row {} of {}", row, name);
  }

 private:
  std::pair<const Item*, int64_t> Find(int64_t sample) const {
    const auto after = std::upper_bound(first_.begin(), first_.end(), sample);
    const auto place = static_cast<size_t>(after - first_.begin()) - 1;
    return {&items_[place], sample - first_[place]};
  }

  // Reads a .pb or .npz file.
  absl::StatusOr<Tensor> ReadWhole(const fs::path& file, size_t input) const {
    if (file.extension() == ".npz") return FromArchive(file, input);
    if (!format_.read_pb) return Unsupported("`{}`: .pb files are not read here", Shown(file));
    return format_.read_pb(file);
  }

  absl::StatusOr<Tensor> FromArchive(const fs::path& file, size_t input) const {
    QUENCH_ASSIGN_OR_RETURN(const auto arrays, Archive(file));
    const std::string& name = inputs_[input].name;
    for (const std::string& each : {name, NpyStemOf(name), fmt::format("arr_{}", input)}) {
      if (const auto found = arrays->find(each); found != arrays->end()) return found->second;
    }
    if (inputs_.size() == 1 && arrays->size() == 1) return arrays->begin()->second;
    std::vector<std::string> names;
    for (const auto& [each, tensor] : *arrays) {
      if (names.size() < 20) names.push_back("`" + each + "`");
    }
    return InvalidArgument(
        "`{}` has no array of {} `{}`, but {}", Shown(file), format_.what, name,
        names.empty() ? "none at all" : fmt::format("{}", fmt::join(names, ", ")));
  }

  // The last one is kept: its rows are asked for in turn.
  using Arrays = std::shared_ptr<const std::map<std::string, Tensor>>;
  absl::StatusOr<Arrays> Archive(const fs::path& file) const {
    const std::lock_guard lock(mutex_);
    if (archive_ != nullptr && archive_path_ == file) return archive_;
    archive_ = nullptr;  // two of them need not fit into memory
    QUENCH_ASSIGN_OR_RETURN(auto arrays, ReadNpz(file, Shown(file)));
    archive_ = std::make_shared<const std::map<std::string, Tensor>>(std::move(arrays));
    archive_path_ = file;
    return archive_;
  }

  absl::StatusOr<int64_t> Look(const fs::path& file, size_t index) const {
    const ArtifactTensor& input = inputs_[index];
    if (IsImageFile(file)) {
      if (!format_.images) {
        return InvalidArgument(
            "`{}` is an image, and nothing says how it is scaled: imagenet, unit, "
            "signed or bytes",
            Shown(file));
      }
      QUENCH_RETURN_IF_ERROR(ImagePlaceOf(input).status());
      QUENCH_RETURN_IF_ERROR(CheckImage(file, Shown(file)));
      return 1;
    }
    DataType dtype = DataType::kUndefined;
    std::vector<int64_t> dims;
    if (file.extension() == ".npy") {
      QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<NpyFile> npy, NpyFile::Open(file, Shown(file)));
      dtype = npy->dtype();
      dims = npy->dims();
    } else {
      QUENCH_ASSIGN_OR_RETURN(const Tensor tensor, ReadWhole(file, index));
      dtype = tensor.dtype();
      dims = tensor.dims();
    }
    const int64_t samples = dtype == input.dtype ? SamplesIn(dims, input) : 0;
    if (samples > 0) return samples;
    return InvalidArgument("`{}` is {}, {} `{}` is {}", Shown(file), Describe(dtype, dims),
                           format_.what, input.name, Describe(input));
  }

  absl::StatusOr<Tensor> ReadOne(const Item& item, size_t input, int64_t row) const {
    const fs::path& file = item.files[input];
    if (IsImageFile(file)) {
      QUENCH_ASSIGN_OR_RETURN(const ImagePlace place, ImagePlaceOf(inputs_[input]));
      return ReadImage(file, place, inputs_[input].dtype, *format_.images, Shown(file));
    }
    const int64_t rows = inputs_[input].dims.empty() ? 1 : inputs_[input].dims[0].value;
    if (file.extension() == ".npy") {
      QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<NpyFile> npy, NpyFile::Open(file, Shown(file)));
      return item.samples == 1 ? npy->All() : npy->Rows(row * rows, rows);
    }
    QUENCH_ASSIGN_OR_RETURN(Tensor tensor, ReadWhole(file, input));
    if (item.samples == 1) return tensor;
    std::vector<int64_t> dims = tensor.dims();
    dims[0] = rows;
    const size_t bytes = tensor.bytes().size() / static_cast<size_t>(item.samples);
    Tensor part = Tensor::Zeros(tensor.dtype(), std::move(dims));
    const auto from = tensor.bytes().subspan(static_cast<size_t>(row) * bytes, bytes);
    std::copy(from.begin(), from.end(), part.mutable_bytes());
    return part;
  }

  const fs::path root_;
  const std::vector<ArtifactTensor> inputs_;
  const SampleFormat format_;
  std::vector<Item> items_;
  std::vector<int64_t> first_;  // sample of each item
  int64_t count_ = 0;
  mutable std::mutex mutex_;
  mutable fs::path archive_path_;
  mutable Arrays archive_;
};

// Samples of an archive, which exists as long as they do.
class ArchiveSamples final : public Samples {
 public:
  ArchiveSamples(std::unique_ptr<UnpackedArchive> archive, std::unique_ptr<Samples> samples)
      : archive_(std::move(archive)), samples_(std::move(samples)) {}
  int64_t count() const override { return samples_->count(); }
  absl::StatusOr<std::vector<Tensor>> Read(int64_t sample) const override {
    return samples_->Read(sample);
  }
  std::string NameOf(int64_t sample) const override { return samples_->NameOf(sample); }

 private:
  const std::unique_ptr<UnpackedArchive> archive_;
  const std::unique_ptr<Samples> samples_;
};

// The file of each input in a sample's folder.
absl::StatusOr<std::vector<fs::path>> FilesOf(const fs::path& folder,
                                              std::span<const ArtifactTensor> inputs,
                                              const std::string& what) {
  const std::string shown = folder.filename().string();
  std::vector<fs::path> files;
  StatusCollector problems;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string number = fmt::format("{}_{}", what, i), name = NpyStemOf(inputs[i].name);
    std::vector<std::string> names;
    for (const std::string& stem : {name, number}) {
      for (const char* extension : {".npy", ".pb", ".pb.npy"}) names.push_back(stem + extension);
    }
    std::error_code error;
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& each) {
      return fs::exists(folder / each, error);
    });
    if (found == names.end()) {
      problems.Add(
          InvalidArgument("`{}` has no file of {} `{}`: none of {}.npy, {}.pb, {}.npy, {}.pb",
                          shown, what, inputs[i].name, name, name, number, number));
      continue;
    }
    files.push_back(folder / *found);
  }
  if (!problems.ok()) return problems.Finish();
  return files;
}

// Whether the folder is one sample, with files as ONNX's test data names them.
bool IsOneSample(const fs::path& folder, const std::string& what) {
  std::error_code error;
  return std::ranges::any_of(std::array{".npy", ".pb", ".pb.npy"}, [&](const char* extension) {
    return fs::exists(folder / (what + "_0" + extension), error);
  });
}

class RandomSamples final : public Samples {
 public:
  RandomSamples(int64_t count, uint64_t seed, std::vector<ArtifactTensor> inputs,
                std::map<std::string, int64_t> sizes)
      : count_(count), seed_(seed), inputs_(std::move(inputs)), sizes_(std::move(sizes)) {}
  int64_t count() const override { return count_; }
  absl::StatusOr<std::vector<Tensor>> Read(int64_t sample) const override {
    return RandomInputs(inputs_, seed_ + static_cast<uint64_t>(sample), sizes_, kAnyIndex);
  }
  std::string NameOf(int64_t sample) const override {
    return fmt::format("random sample {}", sample);
  }

 private:
  const int64_t count_;
  const uint64_t seed_;
  const std::vector<ArtifactTensor> inputs_;
  const std::map<std::string, int64_t> sizes_;
};

class GraphSamples final : public Samples {
 public:
  GraphSamples(int64_t count, uint64_t seed, Graph graph, std::map<std::string, int64_t> sizes)
      : count_(count), seed_(seed), graph_(std::move(graph)), sizes_(std::move(sizes)) {}
  int64_t count() const override { return count_; }
  absl::StatusOr<std::vector<Tensor>> Read(int64_t sample) const override {
    return RandomInputs(graph_, seed_ + static_cast<uint64_t>(sample), sizes_);
  }
  std::string NameOf(int64_t sample) const override {
    return fmt::format("random sample {}", sample);
  }

 private:
  const int64_t count_;
  const uint64_t seed_;
  const Graph graph_;
  const std::map<std::string, int64_t> sizes_;
};

absl::StatusOr<std::vector<fs::path>> Sorted(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator iterator(folder, error);
  for (; !error && iterator != fs::directory_iterator(); iterator.increment(error)) {
    if (entries.size() == kMaxItems) {
      return absl::ResourceExhaustedError(
          fmt::format("`{}` has more than {} files", folder.string(), kMaxItems));
    }
    entries.push_back(iterator->path());
  }
  if (error) return ErrnoStatus(error.value(), "list", folder);
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The entries to look at in a folder whose entries are samples, and folders of samples.
absl::StatusOr<std::vector<fs::path>> EntriesOf(const fs::path& folder, bool images) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, Sorted(folder));
  std::vector<fs::path> all;
  for (const fs::path& entry : entries) {
    std::error_code error;
    if (!images || !fs::is_directory(entry, error)) {
      all.push_back(entry);
      continue;
    }
    QUENCH_ASSIGN_OR_RETURN(const std::vector<fs::path> inner, Sorted(entry));
    const bool of_images = std::any_of(inner.begin(), inner.end(), IsImageFile);
    if (!of_images) all.push_back(entry);
    for (const fs::path& file : inner) {
      if (IsImageFile(file)) all.push_back(file);
    }
  }
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Samples>> OpenSamples(const fs::path& path,
                                                     std::span<const ArtifactTensor> inputs,
                                                     const SampleFormat& format,
                                                     const StepContext& context) {
  if (path.extension() == ".zip") {
    QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<UnpackedArchive> archive,
                            UnpackedArchive::Open(path, context));
    QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<Samples> inner,
                            OpenSamples(archive->samples(), inputs, format, context));
    return std::make_unique<ArchiveSamples>(std::move(archive), std::move(inner));
  }
  std::error_code error;
  if (!fs::exists(path, error)) return ErrnoStatus(ENOENT, "open", path);
  const bool folder = fs::is_directory(path, error);
  auto samples = std::make_unique<FileSamples>(folder ? path : path.parent_path(), inputs, format);
  std::vector<fs::path> entries = {path};
  if (folder && !IsOneSample(path, format.what)) {
    QUENCH_ASSIGN_OR_RETURN(entries, EntriesOf(path, inputs.size() == 1));
  } else if (!folder && !IsSampleFile(path)) {
    return InvalidArgument(
        "`{}`: samples are .npy, .npz, .pb, .png or .jpg files, folders or .zip archives of them",
        path.string());
  }
  StatusCollector problems;
  for (size_t i = 0; i < entries.size(); ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report(
        {"look at samples", "", static_cast<int64_t>(i), static_cast<int64_t>(entries.size())});
    const fs::path& entry = entries[i];
    if (fs::is_directory(entry, error)) {
      const absl::StatusOr<std::vector<fs::path>> files = FilesOf(entry, inputs, format.what);
      problems.Add(files.ok() ? samples->Add(*files, true) : files.status());
    } else if (IsSampleFile(entry)) {
      // An archive has all inputs.
      problems.Add(
          inputs.size() == 1 || entry.extension() == ".npz"
              ? samples->Add(std::vector<fs::path>(inputs.size(), entry), false)
              : InvalidArgument("`{}`: the model has {} inputs, so each sample is a folder "
                                "with a file for each of them",
                                samples->Shown(entry), inputs.size()));
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  if (samples->count() == 0) {
    return InvalidArgument("`{}` has no samples: no .npy, .npz, .pb, .png or .jpg files{}",
                           path.filename().string(),
                           inputs.size() == 1 ? "" : " in folders, one for each sample");
  }
  return samples;
}

absl::StatusOr<std::vector<int64_t>> ClassesOfFolders(const fs::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, EntriesOf(path, /*images=*/true));
  std::vector<int64_t> classes;
  StatusCollector problems;
  fs::path folder;
  for (const fs::path& entry : entries) {
    if (entry.parent_path() == path) {
      if (IsSampleFile(entry)) {
        problems.Add(InvalidArgument("`{}` lies in no folder that is a class",
                                     entry.lexically_relative(path).string()));
      }
      continue;
    }
    const bool same = !classes.empty() && entry.parent_path() == folder;
    classes.push_back(classes.empty() ? 0 : classes.back() + (same ? 0 : 1));
    folder = entry.parent_path();
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  if (classes.empty())
    return InvalidArgument("`{}` has no folders of images", path.filename().string());
  return classes;
}

std::unique_ptr<Samples> MakeRandomSamples(int64_t count, uint64_t seed,
                                           std::vector<ArtifactTensor> inputs,
                                           std::map<std::string, int64_t> sizes) {
  return std::make_unique<RandomSamples>(count, seed, std::move(inputs), std::move(sizes));
}

std::unique_ptr<Samples> MakeRandomSamples(int64_t count, uint64_t seed, Graph graph,
                                           std::map<std::string, int64_t> sizes) {
  return std::make_unique<GraphSamples>(count, seed, std::move(graph), std::move(sizes));
}

}  // namespace quench
