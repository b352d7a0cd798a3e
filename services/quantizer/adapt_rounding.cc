#include "services/quantizer/adapt_rounding.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/passes/passes.h"
#include "common/runner/runner.h"
#include "services/quantizer/calibrate.h"
#include "services/quantizer/flips.h"
#include "services/quantizer/layer_inputs.h"
#include "services/quantizer/parts.h"
#include "services/quantizer/weight_only.h"
#include "services/quantizer/weights.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kPlaces = 8192;                   // of all samples, that moments are taken from
constexpr int64_t kLongestPart = 2048;              // of a row, whose moments are one matrix
constexpr int64_t kPatchBytes = int64_t{64} << 20;  // of one layer and sample, and that wait in all
constexpr int64_t kMomentBytes = int64_t{512} << 20;
constexpr int64_t kRowsOfTask = 64;

// Kernels, and what reads each.
struct RoundedLayer {
  std::string node, constant;
  Tensor weights;
  WeightScheme scheme;
  KernelRows rows;
  std::vector<Node> readers;
  std::vector<std::string> inputs;  // the value that each reader multiplies with

  int64_t width() const { return rows.groups * rows.length; }
  int64_t parts() const {
    const auto bytes = static_cast<int64_t>(sizeof(float)) * width();
    const int64_t longest = std::clamp<int64_t>(kMomentBytes / bytes, 1, kLongestPart);
    return (rows.length + longest - 1) / longest;
  }
  // Where a part of a row begins; the end for `part` = parts().
  int64_t Begin(int64_t part) const { return rows.length * part / parts(); }
  int64_t MomentBytes() const {
    const int64_t longest = (rows.length + parts() - 1) / parts();
    return rows.groups * parts() * longest * longest * static_cast<int64_t>(sizeof(float));
  }
};

// Products in the order of the graph, those that share a constant and its scales together.
std::vector<RoundedLayer> LayersOf(const Graph& graph, const std::vector<bool>& selected,
                                   const QuantizeOptions& options) {
  std::vector<RoundedLayer> layers;
  std::map<std::pair<ValueId, int>, size_t> known;
  std::set<ValueId> tables;  // rows of which are taken: they are not for one product alone
  for (const Node& node : graph.nodes) {
    if (node.op == "Gather") tables.insert(node.inputs[0]);
  }
  const bool alone = options.source == RangeSource::kWeights;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!selected[i] || !IsAmong(node.op, {"Conv", "Gemm", "MatMul"})) continue;
    if (alone && !WhyWeightsStayFloat(graph, node).empty()) continue;
    const ValueId id = node.inputs[1];
    const Value& value = graph.value(id);
    if (value.constant == nullptr || value.constant->tensor.dtype() != DataType::kF32 ||
        !IsActivation(graph, node.inputs[0]) || tables.contains(id))
      continue;
    const Tensor& weights = value.constant->tensor;
    const std::optional<KernelRows> rows = RowsOf(node, weights);
    if (!rows) continue;
    const WeightScheme scheme = alone ? SchemeOfMatrix(node, weights, false, options)
                                      : SchemeOfKernel(node, weights, options);
    const auto [found, fresh] = known.emplace(std::pair(id, scheme.axis), layers.size());
    if (fresh) layers.push_back({node.name, value.name, weights, scheme, *rows, {}, {}});
    RoundedLayer& layer = layers[found->second];
    if (layer.rows != *rows)
      continue;  // the same numbers as another matrix: those of the first count
    layer.readers.push_back(node);
    layer.inputs.push_back(graph.value(node.inputs[0]).name);
  }
  return layers;
}

// Calls f(0) to f(count - 1) on so many threads.
void ForEach(int64_t count, int threads, const std::function<void(int64_t)>& f) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) f(i);
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < std::min<int64_t>(threads, count); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

// Rows of one part of one group.
struct RowTask {
  int64_t group = 0, part = 0, first = 0, last = 0;
};

class RoundingSearch {
 public:
  RoundingSearch(std::vector<RoundedLayer> layers, Artifact& artifact, const Samples& samples,
                 int threads, const StepContext& context)
      : layers_(std::move(layers)),
        artifact_(artifact),
        samples_(samples),
        threads_(threads),
        context_(context) {}

  absl::StatusOr<std::vector<AdaptedKernel>> Run() {
    std::vector<std::pair<size_t, size_t>> rounds;  // of layers
    int64_t bytes = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const int64_t more = layers_[i].MomentBytes();
      if (i == 0 || bytes + more > kMomentBytes) {
        rounds.emplace_back(i, i);
        bytes = 0;
      }
      bytes += more;
      rounds.back().second = i + 1;
    }
    total_ = static_cast<int64_t>(rounds.size()) * samples_.count() +
             static_cast<int64_t>(layers_.size());
    std::vector<AdaptedKernel> kernels;
    for (const auto& [first, last] : rounds) {
      QUENCH_RETURN_IF_ERROR(Measure(first, last));
      for (size_t i = first; i < last; ++i) {
        context_.Report({"round", layers_[i].node, done_++, total_});
        QUENCH_ASSIGN_OR_RETURN(AdaptedKernel kernel, Adapt(layers_[i], moments_[i - first]));
        kernels.push_back(std::move(kernel));
        moments_[i - first].clear();
      }
    }
    return kernels;
  }

 private:
  // The inputs of a layer at some places.
  struct Patches {
    size_t layer;
    std::vector<float> rows;
  };

  // Moments of the inputs of layers `first` to before `last`.
  absl::Status Measure(size_t first, size_t last) {
    moments_.clear();
    for (size_t i = first; i < last; ++i) {
      std::vector<Moments>& of_layer = moments_.emplace_back();
      const RoundedLayer& layer = layers_[i];
      for (int64_t group = 0; group < layer.rows.groups; ++group) {
        for (int64_t part = 0; part < layer.parts(); ++part)
          of_layer.emplace_back(layer.Begin(part + 1) - layer.Begin(part));
      }
    }
    for (int64_t sample = 0; sample < samples_.count(); ++sample) {
      context_.Report({"round", "inputs of layers", done_++, total_});
      QUENCH_RETURN_IF_ERROR(context_.Check());
      QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, samples_.Read(sample));
      QUENCH_RETURN_IF_ERROR(Annotate(AddSample(sample, inputs, first, last),
                                      fmt::format("sample {}", samples_.NameOf(sample))));
    }
    return absl::OkStatus();
  }

  absl::Status AddSample(int64_t sample, const std::vector<Tensor>& inputs, size_t first,
                         size_t last) {
    std::multimap<std::string, std::pair<size_t, size_t>> wanted;  // value -> layer, reader
    for (size_t i = first; i < last; ++i) {
      for (size_t r = 0; r < layers_[i].readers.size(); ++r)
        wanted.emplace(layers_[i].inputs[r], std::pair(i, r));
    }
    // Inputs of layers are collected until there are many or the run has ended: then cores share
    // the work.
    std::vector<Patches> patches;
    int64_t waiting = 0;
    const int64_t places = (kPlaces + samples_.count() - 1) / samples_.count();
    const auto take = [&](const std::string& name, const Tensor& tensor) {
      const auto [begin, end] = wanted.equal_range(name);
      for (auto at = begin; at != end; ++at) {
        const RoundedLayer& layer = layers_[at->second.first];
        const auto bytes = static_cast<int64_t>(sizeof(float)) * layer.width();
        const int64_t most = std::clamp<int64_t>(kPatchBytes / bytes, 1, places);
        patches.push_back(
            {at->second.first, PatchesOf(layer.readers[at->second.second], layer.weights, tensor,
                                         most, Shift(sample))});
        waiting += bytes * most;
        if (waiting < kPatchBytes) continue;
        AddAll(patches, first, last);
        waiting = 0;
      }
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string& name = artifact_.inputs()[i].name;
      QUENCH_RETURN_IF_ERROR(Annotate(CheckFinite(inputs[i]), fmt::format("value `{}`", name)));
      take(name, inputs[i]);
    }
    QUENCH_RETURN_IF_ERROR(artifact_.Run(inputs, context_, take).status());
    AddAll(patches, first, last);
    return absl::OkStatus();
  }

  // One thread has all of a layer, in the order they came: sums do not depend on their number.
  void AddAll(std::vector<Patches>& patches, size_t first, size_t last) {
    ForEach(static_cast<int64_t>(last - first), threads_, [&](int64_t i) {
      for (const Patches& each : patches) {
        if (each.layer == first + static_cast<size_t>(i))
          AddPatches(layers_[each.layer], each.rows, moments_[static_cast<size_t>(i)]);
      }
    });
    patches.clear();
  }

  // The sequence of van der Corput: places move through all of a sample's.
  static double Shift(int64_t sample) {
    double shift = 0, digit = 0.5;
    for (int64_t rest = sample; rest > 0; rest /= 2, digit /= 2) shift += digit * (rest % 2);
    return shift;
  }

  static void AddPatches(const RoundedLayer& layer, const std::vector<float>& patches,
                         std::vector<Moments>& moments) {
    const int64_t width = layer.width();
    const auto count = static_cast<int64_t>(patches.size()) / width;
    const auto finite = [](float x) { return std::isfinite(x); };
    // Values that are infinite on purpose, such as masks, say nothing about rounding.
    if (count * width != static_cast<int64_t>(patches.size()) ||
        !std::all_of(patches.begin(), patches.end(), finite))
      return;
    for (size_t i = 0; i < moments.size(); ++i) {
      const auto group = static_cast<int64_t>(i) / layer.parts();
      const int64_t part = static_cast<int64_t>(i) % layer.parts();
      moments[i].Add(patches.data() + group * layer.rows.length + layer.Begin(part), count, width);
    }
  }

  absl::StatusOr<AdaptedKernel> Adapt(const RoundedLayer& layer, std::vector<Moments>& moments) {
    auto nearest = ToIntegers(layer.weights, layer.scheme, context_);
    if (!nearest.ok())
      return Annotate(nearest.status(), fmt::format("node `{}`: weights", layer.node));
    for (Moments& each : moments) each.Finish();
    std::vector<RowTask> tasks;
    for (int64_t group = 0; group < layer.rows.groups; ++group) {
      for (int64_t part = 0; part < layer.parts(); ++part) {
        for (int64_t row = 0; row < layer.rows.outputs; row += kRowsOfTask)
          tasks.push_back({group, part, row, std::min(row + kRowsOfTask, layer.rows.outputs)});
      }
    }
    std::vector<uint8_t> moved(static_cast<size_t>(layer.weights.size()), 0);
    std::vector<FlipNoise> noise(tasks.size());
    const Neighbours neighbours(layer.weights, layer.scheme, *nearest);
    ForEach(static_cast<int64_t>(tasks.size()), threads_, [&](int64_t i) {
      if (!context_.Check().ok()) return;
      const RowTask& task = tasks[static_cast<size_t>(i)];
      const Moments& seen = moments[static_cast<size_t>(task.group * layer.parts() + task.part)];
      noise[static_cast<size_t>(i)] = AdaptRows(layer, neighbours, task, seen, moved);
    });
    QUENCH_RETURN_IF_ERROR(context_.Check());
    return Described(layer, moved, noise);
  }

  static FlipNoise AdaptRows(const RoundedLayer& layer, const Neighbours& neighbours,
                             const RowTask& task, const Moments& seen,
                             std::vector<uint8_t>& moved) {
    const int64_t begin = layer.Begin(task.part), length = layer.Begin(task.part + 1) - begin;
    const std::span<const float> weights = layer.weights.as<float>();
    FlipRows flips(task.last - task.first, length);
    std::vector<size_t> elements;
    for (int64_t row = task.first; row < task.last; ++row) {
      for (int64_t k = begin; k < begin + length; ++k) {
        const int64_t element = layer.rows.ElementOf(task.group, row, k);
        const size_t at = elements.size();
        elements.push_back(static_cast<size_t>(element));
        flips.weight[at] = weights[elements.back()];
        flips.error[at] = neighbours.Error(element);
        flips.step[at] = static_cast<float>(neighbours.Step(element)) * neighbours.Scale(element);
      }
    }
    const FlipNoise noise = Flip(seen, flips);
    for (size_t i = 0; i < elements.size(); ++i) moved[elements[i]] = flips.flipped[i];
    return noise;
  }

  static AdaptedKernel Described(const RoundedLayer& layer, const std::vector<uint8_t>& moved,
                                 const std::vector<FlipNoise>& noise) {
    AdaptedKernel kernel{
        layer.constant, layer.scheme.axis, layer.node, "", layer.weights.size(), 0, 0, 0};
    kernel.otherwise.assign((moved.size() + 7) / 8, '\0');
    for (size_t i = 0; i < moved.size(); ++i) {
      if (moved[i] == 0) continue;
      kernel.otherwise[i / 8] = static_cast<char>(kernel.otherwise[i / 8] | 1 << (i % 8));
      ++kernel.moved;
    }
    FlipNoise all;
    for (const FlipNoise& each : noise) all += each;
    const auto db = [&](double error) {
      return error == 0 ? std::numeric_limits<double>::infinity()
                        : 10 * std::log10(all.signal / error);  // NaN where sums overflow
    };
    kernel.nearest_db = db(all.nearest);
    kernel.adapted_db = db(all.adapted);
    return kernel;
  }

  const std::vector<RoundedLayer> layers_;
  Artifact& artifact_;
  const Samples& samples_;
  const int threads_;
  const StepContext& context_;
  std::vector<std::vector<Moments>> moments_;  // of the round's layers: per group and part
  int64_t done_ = 0, total_ = 0;
};

// Per node, whether options leave it: quantization selects groups, but of weights alone.
absl::StatusOr<std::vector<bool>> SelectedAsQuantized(const Graph& graph,
                                                      const QuantizeOptions& options,
                                                      const StepContext& context) {
  if (options.source == RangeSource::kWeights) return SelectedNodes(graph, options);
  QUENCH_ASSIGN_OR_RETURN(const Graph fused, passes::RunPass(*passes::FindPass("fuse_groups"),
                                                             graph, options.passes, context));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<bool> groups, SelectedNodes(fused, options));
  std::set<std::string> names;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i]) names.insert(RootOf(fused.nodes[i]).name);
  }
  std::vector<bool> selected;
  for (const Node& node : graph.nodes) selected.push_back(names.contains(node.name));
  return selected;
}

}  // namespace

absl::StatusOr<Rounding> AdaptRounding(const Graph& graph, const std::filesystem::path& tap_library,
                                       const Samples& samples, const QuantizeOptions& options,
                                       const RoundingOptions& how, const StepContext& context) {
  if (samples.count() < 1) return InvalidArgument("no samples to adapt rounding to");
  QUENCH_ASSIGN_OR_RETURN(const Graph checked, CheckedForQuantization(graph, options));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact, Artifact::Open(tap_library));
  QUENCH_RETURN_IF_ERROR(CheckTapLibrary(*artifact, graph));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<bool> selected,
                          SelectedAsQuantized(checked, options, context));
  std::vector<RoundedLayer> layers = LayersOf(checked, selected, options);
  if (layers.empty()) {
    return absl::FailedPreconditionError(
        "no layer has weights whose rounding could be adapted: convolutions (not of weights alone) "
        "and matrix products with a constant kernel have");
  }
  Rounding rounding{how.random, Fingerprint(graph), SchemeWords(options), samples.count(), {}};
  QUENCH_ASSIGN_OR_RETURN(
      rounding.kernels,
      RoundingSearch(std::move(layers), *artifact, samples, how.threads, context).Run());
  return rounding;
}

}  // namespace quench::quantizer
