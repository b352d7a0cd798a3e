// Streams, which do everything at once, in the order of calls; what they record; events.
#include <cstring>

#include "common/runtime/device/emulated/driver.h"

namespace quench::emulated {
namespace {

void* HostOf(CUdeviceptr address) { return std::bit_cast<void*>(address); }

Failure PerformKernel(Driver* driver, const KernelOperation& operation) {
  const Function* const function = driver->functions.Find(operation.function);
  if (function == nullptr) {
    return {CUDA_ERROR_ILLEGAL_ADDRESS, "kernel `" + operation.name + "`: its module is unloaded"};
  }
  // A copy for each run: kernels may write their arguments.
  std::vector<std::byte> bytes = operation.arguments;
  std::vector<void*> arguments;
  for (const size_t offset : operation.offsets) arguments.push_back(bytes.data() + offset);
  const Settings& settings = driver->settings;
  Launch launch = {function->entry,        operation.blocks, operation.threads,
                   operation.shared_bytes, arguments.data(), function->context->device,
                   function->constants,    settings.reverse, settings.races};
  const auto add = [&](const void* data, size_t size) {
    const auto begin = std::bit_cast<uint64_t>(data);
    launch.readable.push_back({begin, begin + size});
  };
  add(bytes.data(), bytes.size());
  add(static_cast<const void*>(arguments.data()), arguments.size() * sizeof(void*));
  ++driver->launches;
  return Run(launch, driver->memory);
}

bool IsAllocated(const Driver& driver, CUdeviceptr address, size_t bytes) {
  return driver.memory.Find(address, bytes) != nullptr;
}

bool IsValid(const Driver& driver, const CopyOperation& copy) {
  if (copy.bytes == 0) return true;
  if (copy.to_device != 0 && !IsAllocated(driver, copy.to_device, copy.bytes)) return false;
  if (copy.from_device != 0 && !IsAllocated(driver, copy.from_device, copy.bytes)) return false;
  const bool within = copy.to_device != 0 && copy.from_device != 0;
  return !within || copy.to_device + copy.bytes <= copy.from_device ||
         copy.from_device + copy.bytes <= copy.to_device;
}

bool IsValid(const Driver& driver, const SetOperation& set) {
  if (set.to % sizeof(set.value) != 0 || set.count > SIZE_MAX / sizeof(set.value)) return false;
  return set.count == 0 || IsAllocated(driver, set.to, set.count * sizeof(set.value));
}

constexpr char kNoMemory[] = " of a graph: memory that is in no allocation";

struct Performer {
  Driver& driver;

  Failure operator()(const KernelOperation& kernel) const { return PerformKernel(&driver, kernel); }
  Failure operator()(const CopyOperation& copy) const {
    if (!IsValid(driver, copy)) {
      return {CUDA_ERROR_ILLEGAL_ADDRESS, std::string("copy") + kNoMemory};
    }
    void* const to = copy.to_device != 0 ? HostOf(copy.to_device) : copy.to_host;
    const void* const from = copy.from_device != 0 ? HostOf(copy.from_device) : copy.from_host;
    if (copy.bytes > 0) std::memcpy(to, from, copy.bytes);
    return {};
  }
  Failure operator()(const SetOperation& set) const {
    if (!IsValid(driver, set)) {
      return {CUDA_ERROR_ILLEGAL_ADDRESS, std::string("memset") + kNoMemory};
    }
    auto* const words = static_cast<uint32_t*>(HostOf(set.to));
    for (size_t i = 0; i < set.count; ++i) words[i] = set.value;
    return {};
  }
  Failure operator()(const RecordOperation& record) const {
    Event* const event = driver.events.Find(record.event);
    if (event == nullptr) return {CUDA_ERROR_INVALID_HANDLE, "a graph records a destroyed event"};
    event->recorded = std::chrono::steady_clock::now();
    return {};
  }
};

// The stream's state, or what is wrong with the handle. *found is null for the context's own
// stream.
CUresult FindStream(const Call& call, CUstream stream, Stream** found) {
  *found = nullptr;
  if (stream == nullptr) return CUDA_SUCCESS;
  *found = call->streams.Find(stream);
  return *found == nullptr || (*found)->context != call.context ? CUDA_ERROR_INVALID_HANDLE
                                                                : CUDA_SUCCESS;
}

CUresult SubmitCopy(CUstream stream, const CopyOperation& copy) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  const bool missing = (copy.to_device == 0 && copy.to_host == nullptr) ||
                       (copy.from_device == 0 && copy.from_host == nullptr);
  if ((copy.bytes > 0 && missing) || !IsValid(*call, copy)) return CUDA_ERROR_INVALID_VALUE;
  return Submit(call, stream, copy);
}

}  // namespace

void Perform(Driver* driver, Context* context, const Operation& operation) {
  const Failure failure = std::visit(Performer{*driver}, operation);
  if (failure.code == CUDA_SUCCESS) return;
  context->error = failure.code;
  driver->report = failure.text;
}

CUresult Submit(const Call& call, CUstream stream, Operation operation) {
  Stream* found = nullptr;
  const CUresult result = FindStream(call, stream, &found);
  if (result != CUDA_SUCCESS) return result;
  if (found != nullptr && found->capture) {
    if (found->invalid) return kCaptureInvalidated;
    found->capture->operations.push_back(std::move(operation));
    return CUDA_SUCCESS;
  }
  Perform(&*call, call.context, operation);
  return CUDA_SUCCESS;
}

bool RefusedByCapture(Driver* driver) {
  bool refused = false;
  for (auto& [handle, stream] : driver->streams.objects()) {
    if (!stream.capture || stream.thread != std::this_thread::get_id()) continue;
    stream.invalid = refused = true;
  }
  return refused;
}

}  // namespace quench::emulated

using namespace quench::emulated;

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return to == 0 && bytes > 0 ? CUDA_ERROR_INVALID_VALUE
                              : SubmitCopy(stream, {to, 0, nullptr, from, bytes});
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return SubmitCopy(stream, {0, from, to, nullptr, bytes});
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return SubmitCopy(stream, {to, from, nullptr, nullptr, bytes});
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  const SetOperation operation = {to, value, count};
  if (!IsValid(*call, operation)) return CUDA_ERROR_INVALID_VALUE;
  return Submit(call, stream, operation);
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = call->streams.Add({call.context, std::nullopt, false, {}});
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  const Call call;
  if (!call.MayRelease()) return call.result;
  return call.Released(call->streams.Erase(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuStreamSynchronize(CUstream stream) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  Stream* found = nullptr;
  const CUresult result = FindStream(call, stream, &found);
  if (result != CUDA_SUCCESS || found == nullptr || !found->capture) return result;
  found->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  const Context* owner = call.context;
  if (stream != nullptr) {
    const Stream* const found = call->streams.Find(stream);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    owner = found->context;
  }
  if (owner == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = HandleOf(owner);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  Stream* found = nullptr;
  const CUresult result = FindStream(call, stream, &found);
  if (result != CUDA_SUCCESS) return result;
  if (found == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  if (found->capture) return kIllegalState;
  found->capture = Graph{call.context, {}};
  found->invalid = false;
  found->thread = std::this_thread::get_id();
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  Stream* found = nullptr;
  const CUresult result = FindStream(call, stream, &found);
  if (result != CUDA_SUCCESS) return result;
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  if (found == nullptr || !found->capture) return kIllegalState;
  if (found->thread != std::this_thread::get_id()) return kCaptureWrongThread;
  Graph captured = std::move(*found->capture);
  found->capture.reset();
  if (found->invalid) return kCaptureInvalidated;
  *graph = call->graphs.Add(std::move(captured));
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long /*flags*/) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  const Graph* const found = call->graphs.Find(graph);
  if (exec == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *exec = call->execs.Add(*found);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  const Graph* const found = call->execs.Find(exec);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Operation& operation : found->operations) {
    const CUresult result = Submit(call, stream, operation);
    if (result != CUDA_SUCCESS) return result;
    if (call.context->error != CUDA_SUCCESS) break;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  const Call call;
  if (!call.MayRelease()) return call.result;
  return call.Released(call->execs.Erase(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphDestroy(CUgraph graph) {
  const Call call;
  if (!call.MayRelease()) return call.result;
  return call.Released(call->graphs.Erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  constexpr unsigned kBlockingSync = 1, kDisableTiming = 2;
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  if (event == nullptr || flags > (kBlockingSync | kDisableTiming)) return CUDA_ERROR_INVALID_VALUE;
  *event = call->events.Add({call.context, (flags & kDisableTiming) == 0, std::nullopt});
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  const Event* const found = call->events.Find(event);
  if (found == nullptr || found->context != call.context) return CUDA_ERROR_INVALID_HANDLE;
  return Submit(call, stream, RecordOperation{event});
}

CUresult cuEventSynchronize(CUevent event) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  return call->events.Find(event) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  const Event* const first = call->events.Find(from);
  const Event* const last = call->events.Find(to);
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (first == nullptr || last == nullptr || !first->timing || !last->timing || !first->recorded ||
      !last->recorded) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::chrono::duration<float, std::milli> elapsed = *last->recorded - *first->recorded;
  *milliseconds = elapsed.count();
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  const Call call;
  if (!call.MayRelease()) return call.result;
  return call.Released(call->events.Erase(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
