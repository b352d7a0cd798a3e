#include "services/quantizer/calibrate.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "services/quantizer/parts.h"

namespace quench::quantizer {
namespace {

// Sums are added sample by sample within a block and block by block after: the same additions
// however many workers there are.
constexpr int64_t kBlock = 8;

// Statistics of one block of samples.
class Block {
 public:
  Block(const std::map<std::string, int>& axes, Artifact& artifact)
      : axes_(axes), artifact_(artifact) {}

  absl::Status Run(const std::vector<Tensor>& inputs, const StepContext& context) {
    StatusCollector problems;
    const auto add = [&](const std::string& name, const Tensor& tensor) -> absl::Status {
      const auto axis = axes_.find(name);
      if (axis == axes_.end() || tensor.size() == 0) return absl::OkStatus();
      return Annotate(statistics_.values[name].Add(tensor, axis->second),
                      fmt::format("value `{}`", name));
    };
    // Results that a model computes from finite inputs may be infinite on purpose, as masks of
    // attention are; inputs may contain numbers that stand for infinity, too.
    const auto take = [&](const std::string& name, const Tensor& tensor, bool given) {
      const absl::Status status = add(name, tensor);
      if (absl::IsOutOfRange(status) || (!given && absl::IsInvalidArgument(status))) {
        statistics_.not_finite.insert(name);
      } else {
        problems.Add(status);
      }
    };
    for (size_t i = 0; i < inputs.size(); ++i) take(artifact_.inputs()[i].name, inputs[i], true);
    QUENCH_RETURN_IF_ERROR(problems.Finish());
    const auto made = [&](const std::string& name, const Tensor& tensor) {
      take(name, tensor, false);
    };
    QUENCH_RETURN_IF_ERROR(artifact_.Run(inputs, context, made).status());
    ++statistics_.samples;
    return problems.Finish();
  }
  Statistics Take() { return std::move(statistics_); }

 private:
  const std::map<std::string, int>& axes_;
  Artifact& artifact_;
  Statistics statistics_;
};

class Calibration {
 public:
  Calibration(const Graph& graph, const Samples& samples, const CalibrateOptions& options,
              const StepContext& context)
      : axes_(ChannelAxes(graph)), samples_(samples), options_(options), context_(context) {
    total_.fingerprint = Fingerprint(graph);
    total_.random = options.random;
  }

  absl::StatusOr<Statistics> Run(const std::filesystem::path& library) {
    const int64_t blocks = (samples_.count() + kBlock - 1) / kBlock;
    const auto count = std::clamp<int64_t>(options_.workers, 1, std::max<int64_t>(blocks, 1));
    std::vector<std::unique_ptr<Artifact>> artifacts;
    for (int64_t i = 0; i < count; ++i) {
      QUENCH_ASSIGN_OR_RETURN(artifacts.emplace_back(),
                              Artifact::Open(library, {1, options_.device}));
    }
    context_.Report({"calibrate", "", 0, samples_.count()});
    std::vector<std::thread> threads;
    for (auto& artifact : artifacts) {
      threads.emplace_back([this, blocks, &artifact] { Work(*artifact, blocks); });
    }
    for (std::thread& thread : threads) thread.join();
    QUENCH_RETURN_IF_ERROR(context_.Check());
    if (!failures_.empty()) return failures_.begin()->second;
    for (const std::string& name : total_.not_finite) total_.values.erase(name);
    return std::move(total_);
  }

 private:
  void Work(Artifact& artifact, int64_t blocks) {
    for (;;) {
      const int64_t block = next_.fetch_add(1);
      if (block >= blocks || failed_) return;
      absl::StatusOr<Statistics> statistics = RunBlock(artifact, block);
      if (statistics.ok()) {
        Finish(block, *statistics);
      } else {
        Fail(block, statistics.status());
      }
    }
  }

  absl::StatusOr<Statistics> RunBlock(Artifact& artifact, int64_t block) {
    Block part(axes_, artifact);
    const int64_t end = std::min((block + 1) * kBlock, samples_.count());
    for (int64_t i = block * kBlock; i < end; ++i) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, samples_.Read(i));
      QUENCH_RETURN_IF_ERROR(
          Annotate(part.Run(inputs, context_), fmt::format("sample {}", samples_.NameOf(i))));
      const std::lock_guard lock(mutex_);
      context_.Report({"calibrate", "", ++done_, samples_.count()});
    }
    Statistics statistics = part.Take();
    statistics.fingerprint = total_.fingerprint;
    return statistics;
  }

  // Blocks are added in order; those before their turn wait, few of them at a time.
  void Finish(int64_t block, const Statistics& statistics) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return merged_ == block || failed_; });
    if (failed_) return;
    const absl::Status status = total_.Merge(statistics);
    if (!status.ok()) {
      failures_.emplace(block, status);
      failed_ = true;
    }
    ++merged_;
    turn_.notify_all();
  }

  void Fail(int64_t block, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    failures_.emplace(block, status);
    failed_ = true;
    turn_.notify_all();
  }

  const std::map<std::string, int> axes_;
  const Samples& samples_;
  const CalibrateOptions& options_;
  const StepContext& context_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::condition_variable turn_;
  int64_t merged_ = 0, done_ = 0;
  Statistics total_;
  std::map<int64_t, absl::Status> failures_;  // by block
};

}  // namespace

std::map<std::string, int> ChannelAxes(const Graph& graph) {
  std::map<std::string, int> axes;
  const auto note = [&](ValueId id, int axis) {
    if (id == kNone || graph.value(id).constant != nullptr) return;
    const Value& value = graph.value(id);
    if (value.type.kind != ValueKind::kTensor || !IsFloat(value.type.dtype)) return;
    int& known = axes.emplace(value.name, -1).first->second;
    const int last = value.type.ranked ? value.type.rank() - 1 : -1;
    const int wanted = axis == -2 ? last : axis;
    // A size that changes from sample to sample is none of channels.
    if (known == -1 && wanted >= 0 && wanted <= last &&
        value.type.dims[static_cast<size_t>(wanted)].is_static())
      known = wanted;
  };
  for (const ValueId id : graph.inputs) note(id, -1);
  // Convolutions first: their axis holds where both meet.
  for (const bool convolutions : {true, false}) {
    for (const Node& node : graph.nodes) {
      const bool spatial =
          IsAmong(node.op, {"Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization",
                            "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"});
      const bool product = IsAmong(node.op, {"MatMul", "Gemm"});
      const int axis = convolutions ? (spatial ? 1 : -1) : (product ? -2 : -1);
      for (const ValueId id : node.inputs) note(id, axis);
      for (const ValueId id : node.outputs) note(id, axis);
    }
  }
  return axes;
}

absl::Status CheckTapLibrary(const Artifact& library, const Graph& graph) {
  if (library.fingerprint() == Fingerprint(graph)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("the tap library is of module `{}`, the module is `{}`: compile that one",
                  library.fingerprint().substr(0, 16), Fingerprint(graph).substr(0, 16)));
}

absl::StatusOr<Statistics> Calibrate(const Graph& graph, const std::filesystem::path& tap_library,
                                     const Samples& samples, const CalibrateOptions& options,
                                     const StepContext& context) {
  if (samples.count() < 1) return InvalidArgument("no samples to calibrate on");
  {
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                            Artifact::Open(tap_library, {1, options.device}));
    QUENCH_RETURN_IF_ERROR(CheckTapLibrary(*artifact, graph));
  }
  return Calibration(graph, samples, options, context).Run(tap_library);
}

}  // namespace quench::quantizer
