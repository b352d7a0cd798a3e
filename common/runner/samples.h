// Samples: the inputs that a model is calibrated and compared on.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/runner/images.h"
#include "common/runner/runner.h"

namespace quench {

// Each sample is one run's inputs.
class Samples {
 public:
  virtual ~Samples() = default;
  virtual int64_t count() const = 0;
  // In the order of the model's inputs. Thread-safe.
  virtual absl::StatusOr<std::vector<Tensor>> Read(int64_t sample) const = 0;
  // For messages: "`cat.npy`", "row 7 of `cats.npy`".
  virtual std::string NameOf(int64_t sample) const = 0;
};

// Reads a .pb file; given by a caller that knows ONNX's messages. Empty: none are read.
using TensorFileReader = std::function<absl::StatusOr<Tensor>(const std::filesystem::path&)>;

// How files become tensors.
struct SampleFormat {
  TensorFileReader read_pb;
  std::optional<ImageOptions> images;  // absent: images are refused, for nobody said what to do
  std::string what = "input";          // or "output": what the files hold, and how they are named
};

// Samples in files, at `path`:
//   FILE.npy or FILE.pb                   for a model with one input
//   FILE.png, FILE.jpg                    likewise, preprocessed as `format` says
//   FILE.npz                              arrays by the inputs' names (or arr_0, arr_1, ...)
//   FOLDER of such files                  the same, by name; of images, folders of them too
//   FOLDER of folders, one per sample     a file for each input: its name (`/` and `:` as `_`), or
//                                         input_0, input_1, ... as in ONNX's test data; .pb.npy is
//                                         what such a file was converted to
//   FOLDER with input_0.npy or .pb        one sample: a folder of ONNX's test data
//   FILE.zip                              of any of these
// An array whose first axis is k times that of the input holds k samples, one lacking the first axis
// of size 1 holds one; where the input's first axis is symbolic, a file is one sample as it is. Every file is looked at: all that do not
// fit are told at once, by their paths beneath `path`, and none at all is an error too.
absl::StatusOr<std::unique_ptr<Samples>> OpenSamples(const std::filesystem::path& path,
                                                     std::span<const ArtifactTensor> inputs,
                                                     const SampleFormat& format,
                                                     const StepContext& context);

// The classes of the samples in a folder of folders of images, in the order in which OpenSamples has the samples: a class is
// the place of the image's folder among those folders, sorted by name. INVALID_ARGUMENT names what lies in no such folder.
absl::StatusOr<std::vector<int64_t>> ClassesOfFolders(const std::filesystem::path& path);

// Reproducible, as RandomInputs has them: floats from N(0, 1), integers below kAnyIndex. `sizes` as ChooseSizes has
// them.
std::unique_ptr<Samples> MakeRandomSamples(int64_t count, uint64_t seed,
                                           std::vector<ArtifactTensor> inputs,
                                           std::map<std::string, int64_t> sizes = {});
// Random samples that the graph accepts, made by RandomInputs of inputs.h.
std::unique_ptr<Samples> MakeRandomSamples(int64_t count, uint64_t seed, Graph graph,
                                           std::map<std::string, int64_t> sizes = {});

}  // namespace quench
