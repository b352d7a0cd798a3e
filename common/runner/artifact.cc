#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "common/base/errno_status.h"
#include "common/base/status.h"
#include "common/ir/states.h"
#include "common/runner/runner.h"
#include "common/runtime/rt_internal.h"

namespace quench {
namespace {

absl::Status ToStatus(int code, const quench_rt_error& error) {
  switch (code) {
    case QUENCH_RT_OK:
      return absl::OkStatus();
    case QUENCH_RT_IO:
      return absl::NotFoundError(error.text);
    case QUENCH_RT_ABI:
    case QUENCH_RT_CPU:
    case QUENCH_RT_DEVICE:
    case QUENCH_RT_ENCRYPTED:
      return absl::FailedPreconditionError(error.text);
    case QUENCH_RT_MEMORY:
    case QUENCH_RT_SYSTEM:
      return absl::ResourceExhaustedError(error.text);
    case QUENCH_RT_CORRUPT:
      return absl::DataLossError(error.text);
    case QUENCH_RT_KEY:
      return absl::PermissionDeniedError(error.text);
    case QUENCH_RT_CANCELLED:
      return absl::CancelledError(error.text);
    default:
      return absl::InvalidArgumentError(error.text);
  }
}

ArtifactTensor Describe(const quench_model& model, const quench_tensor_info& info) {
  ArtifactTensor tensor;
  tensor.name = info.name;
  tensor.dtype = static_cast<DataType>(info.dtype);
  for (int32_t i = 0; i < info.rank; ++i) {
    ArtifactDim dim;
    if (info.dims[i].value >= 0) {
      dim.value = dim.min = dim.max = info.dims[i].value;
    } else {
      const quench_symbol_info& symbol = *model.symbols[info.dims[i].symbol];
      dim.symbol = symbol.name;
      dim.min = symbol.min;
      dim.max = symbol.max;
    }
    tensor.dims.push_back(std::move(dim));
  }
  return tensor;
}

ArtifactState StateOf(const quench_model& model, const quench_state_info& info) {
  const quench_tensor_info& input = *model.inputs[info.input];
  const auto dtype = static_cast<DataType>(input.dtype);
  Tensor element;
  if (info.initial != nullptr) {
    element = Tensor::Zeros(dtype, {1});
    std::memcpy(element.mutable_bytes(), info.initial, element.bytes().size());
  }
  std::vector<Dim> dims;
  for (int32_t i = 0; i < input.rank; ++i) dims.emplace_back(input.dims[i].value);
  return {info.input, info.output, InitialState(Type::Tensor(dtype, dims), element)};
}

absl::StatusOr<Tensor> Copy(const std::string& name, const quench_rt_tensor& from) {
  std::vector<int64_t> dims(from.dims, from.dims + from.rank);
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count) return Internal("output `{}` has impossible dims", name);
  Tensor tensor = Tensor::Zeros(static_cast<DataType>(from.dtype), std::move(dims));
  if (!tensor.bytes().empty())
    std::memcpy(tensor.mutable_bytes(), from.data, tensor.bytes().size());
  return tensor;
}

// Forwards cancellation and the deadline of a context to a run in progress.
class Watch {
 public:
  Watch(const StepContext& context, quench_rt_session* session) {
    thread_ = std::thread([this, &context, session] {
      std::unique_lock lock(mutex_);
      while (!done_.wait_for(lock, std::chrono::milliseconds(50), [this] { return over_; })) {
        if (!context.Check().ok()) quench_rt_cancel(session);
      }
    });
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    done_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool over_ = false;
  std::thread thread_;
};

struct TapCall {
  const quench_variant* variant;
  const Artifact::TapSink* sink;
};

void OnTap(void* user, uint32_t tap, const quench_rt_tensor* tensor) {
  const TapCall& call = *static_cast<const TapCall*>(user);
  const std::string name = call.variant->taps[tap]->name;
  absl::StatusOr<Tensor> copy = Copy(name, *tensor);
  if (copy.ok()) (*call.sink)(name, *copy);
}

struct NodeCall {
  size_t num_slots;
  const quench_rt_session* session;
  const Artifact::NodeSink* sink;
};

void OnNode(void* user, int32_t node, const quench_rt_memory* memory) {
  const NodeCall& call = *static_cast<const NodeCall*>(user);
  const auto read = [&call](void* to, const void* from, uint64_t bytes) {
    return quench_rt_read_device(call.session, to, from, bytes) == QUENCH_RT_OK;
  };
  (*call.sink)(node, {memory->inputs,
                      memory->outputs,
                      {memory->slots, call.num_slots},
                      static_cast<const std::byte*>(memory->arena),
                      static_cast<const std::byte*>(memory->device_arena),
                      memory->device_inputs,
                      memory->device_outputs,
                      read});
}

class RuntimeArtifact : public Artifact {
 public:
  explicit RuntimeArtifact(quench_rt_model* model) : model_(model) {}
  ~RuntimeArtifact() override {
    quench_rt_session_free(session_);
    quench_rt_close(model_);
  }

  absl::Status Start(const OpenOptions& how) {
    const quench_model& model = *quench_rt_describe(model_);
    for (uint32_t i = 0; i < model.num_inputs; ++i)
      inputs_.push_back(Describe(model, *model.inputs[i]));
    for (uint32_t i = 0; i < model.num_outputs; ++i)
      outputs_.push_back(Describe(model, *model.outputs[i]));
    const bool has_states = model.size >= offsetof(quench_model, states) + sizeof model.states;
    for (uint32_t i = 0; has_states && i < model.num_states; ++i)
      states_.push_back(StateOf(model, *model.states[i]));
    quench_rt_options options{};
    options.size = sizeof options;
    options.num_threads = static_cast<uint32_t>(std::max(how.threads, 0));
    options.device = how.device.empty() ? nullptr : how.device.c_str();
    on_gpu_ = !how.device.empty() && how.device != "cpu";
    quench_rt_error error;
    return StatusOf(quench_rt_session_create(model_, &options, &session_, &error), error);
  }

  const std::vector<ArtifactTensor>& inputs() const override { return inputs_; }
  const std::vector<ArtifactTensor>& outputs() const override { return outputs_; }
  const std::vector<ArtifactState>& states() const override { return states_; }
  std::string uuid() const override { return quench_rt_describe(model_)->uuid; }
  std::string fingerprint() const override { return quench_rt_describe(model_)->fingerprint; }
  std::string producer() const override { return quench_rt_describe(model_)->producer; }
  std::vector<std::string> class_names() const override {
    const quench_model& model = *quench_rt_describe(model_);
    return model.labels == nullptr
               ? std::vector<std::string>()
               : std::vector<std::string>(model.labels, model.labels + model.num_labels);
  }
  std::string preprocessing() const override {
    const char* text = quench_rt_describe(model_)->preprocessing;
    return text == nullptr ? "" : text;
  }
  std::string variant() const override { return quench_rt_session_variant(session_)->name; }
  std::string device() const override { return quench_rt_device(session_); }

  absl::StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs,
                                          const StepContext& context, const TapSink& tap) override {
    QUENCH_RETURN_IF_ERROR(Bind(inputs));
    quench_rt_error error;
    TapCall call{quench_rt_session_variant(session_), &tap};
    QUENCH_RETURN_IF_ERROR(
        StatusOf(quench_rt_set_tap(session_, tap ? OnTap : nullptr, &call, &error), error));
    const absl::Status status =
        Watched(context, [&](quench_rt_error* why) { return quench_rt_run(session_, why); });
    quench_rt_set_tap(session_, nullptr, nullptr, nullptr);
    QUENCH_RETURN_IF_ERROR(status);
    return Results();
  }

  absl::StatusOr<std::vector<Tensor>> Observe(std::span<const Tensor> inputs,
                                              const StepContext& context,
                                              const NodeSink& sink) override {
    QUENCH_RETURN_IF_ERROR(Bind(inputs));
    NodeCall call{quench_rt_session_variant(session_)->num_slots, session_, &sink};
    QUENCH_RETURN_IF_ERROR(Watched(context, [&](quench_rt_error* why) {
      return quench_rt_observe(session_, OnNode, &call, why);
    }));
    return Results();
  }

  absl::StatusOr<double> Time(std::span<const Tensor> inputs, const StepContext& context) override {
    QUENCH_RETURN_IF_ERROR(context.Check());
    QUENCH_RETURN_IF_ERROR(Bind(inputs));
    quench_rt_error error;
    const auto start = std::chrono::steady_clock::now();
    const int code = quench_rt_run(session_, &error);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    QUENCH_RETURN_IF_ERROR(StatusOf(code, error));
    return taken.count();
  }

  absl::StatusOr<std::vector<NodeTiming>> Profile(std::span<const Tensor> inputs) override {
    QUENCH_RETURN_IF_ERROR(Bind(inputs));
    const quench_variant& variant = *quench_rt_session_variant(session_);
    std::vector<double> seconds(variant.num_nodes, 0);
    quench_rt_error error;
    QUENCH_RETURN_IF_ERROR(StatusOf(quench_rt_profile(session_, seconds.data(), &error), error));
    std::vector<NodeTiming> timings;
    for (uint32_t i = 0; i < variant.num_nodes; ++i) {
      timings.push_back({variant.nodes[i]->name, variant.nodes[i]->kernel, seconds[i]});
    }
    return timings;
  }

  int64_t arena_bytes() const override {
    return static_cast<int64_t>(quench_rt_arena_bytes(session_));
  }
  int64_t arena_lower_bound() const override {
    return static_cast<int64_t>(quench_rt_arena_lower_bound(session_));
  }

 private:
  // Memory that the machine lacks, and not a GPU, has ENOMEM.
  absl::Status StatusOf(int code, const quench_rt_error& error) const {
    const bool on_gpu = session_ == nullptr ? on_gpu_ : device() != "cpu";
    return WithErrno(ToStatus(code, error), code == QUENCH_RT_MEMORY && !on_gpu ? ENOMEM : 0);
  }

  // A run that ends where the context does.
  template <typename Run>
  absl::Status Watched(const StepContext& context, const Run& run) {
    quench_rt_error error;
    int code = QUENCH_RT_OK;
    {
      const Watch watch(context, session_);
      code = run(&error);
    }
    const absl::Status reason = code == QUENCH_RT_CANCELLED ? context.Check() : absl::OkStatus();
    return reason.ok() ? StatusOf(code, error) : reason;
  }

  absl::Status Bind(std::span<const Tensor> inputs) {
    if (inputs.size() != inputs_.size()) {
      return InvalidArgument("{} inputs are given, the model takes {}", inputs.size(),
                             inputs_.size());
    }
    StatusCollector problems;
    for (size_t i = 0; i < inputs.size(); ++i) {
      // The runtime reads inputs only; its struct serves outputs too and has no const.
      const quench_rt_tensor tensor{const_cast<std::byte*>(inputs[i].bytes().data()),
                                    inputs[i].dims().data(),
                                    static_cast<int32_t>(inputs[i].dtype()), inputs[i].rank()};
      quench_rt_error error;
      problems.Add(StatusOf(
          quench_rt_set_input(session_, static_cast<uint32_t>(i), &tensor, &error), error));
    }
    return problems.Finish();
  }

  absl::StatusOr<std::vector<Tensor>> Results() {
    std::vector<Tensor> results;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      quench_rt_tensor output;
      quench_rt_error error;
      QUENCH_RETURN_IF_ERROR(StatusOf(
          quench_rt_get_output(session_, static_cast<uint32_t>(i), &output, &error), error));
      QUENCH_ASSIGN_OR_RETURN(Tensor copy, Copy(outputs_[i].name, output));
      results.push_back(std::move(copy));
    }
    return results;
  }

  quench_rt_model* model_;
  quench_rt_session* session_ = nullptr;
  bool on_gpu_ = false;  // what was asked for
  std::vector<ArtifactTensor> inputs_, outputs_;
  std::vector<ArtifactState> states_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Artifact>> Artifact::Open(const std::filesystem::path& path,
                                                         const OpenOptions& options,
                                                         const ArtifactKey& key) {
  quench_rt_model* model = nullptr;
  quench_rt_error error;
  const int code = key.path.empty()
                       ? quench_rt_open_file(path.c_str(), &model, &error)
                       : quench_rt_open_encrypted(path.c_str(), key.path.c_str(),
                                                  key.password ? key.password->c_str() : nullptr,
                                                  &model, &error);
  QUENCH_RETURN_IF_ERROR(ToStatus(code, error));
  auto artifact = std::make_unique<RuntimeArtifact>(model);
  QUENCH_RETURN_IF_ERROR(artifact->Start(options));
  return artifact;
}

}  // namespace quench
