// The emulated driver's state: contexts, modules, streams, events, graphs. Handles are numbers that
// are never used twice, so that one whose object is gone is recognised.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/runtime/device/cuda_api.h"
#include "common/runtime/device/emulated.h"
#include "common/runtime/device/emulated/blocks.h"
#include "common/runtime/device/emulated/memory.h"

#define QUENCH_EMULATED_DECLARE(name, exported, arguments) extern "C" CUresult exported arguments;
QUENCH_CUDA_FUNCTIONS(QUENCH_EMULATED_DECLARE)
#undef QUENCH_EMULATED_DECLARE

namespace quench::emulated {

// Results of the driver that cuda_api.h does not name.
constexpr CUresult kIllegalState = 401;        // CUDA_ERROR_ILLEGAL_STATE
constexpr CUresult kCaptureInvalidated = 901;  // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
constexpr CUresult kCaptureWrongThread = 908;  // CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD

constexpr int kMostDevices = 8;
constexpr uint32_t kSharedBytes = 48 << 10, kMostSharedBytes = 227 << 10;

// From environment variables, at cuInit.
struct Settings {
  int devices = 1;
  uint64_t memory_bytes = uint64_t{4} << 30;  // of all devices together
  int driver = 12040;
  bool reverse = false, races = false;
};

struct Context {
  int device = 0;
  uint32_t retains = 0;
  CUresult error = CUDA_SUCCESS;  // of a launch: what every later call returns
};

inline CUcontext HandleOf(const Context* context) {
  return reinterpret_cast<CUcontext>(const_cast<Context*>(context));
}

struct Module {
  Context* context;
  std::vector<CUfunction> functions;  // of each entry of the image
};

struct Function {
  Context* context;
  const quench_emulated_entry* entry;
  uint32_t most_shared_bytes = kSharedBytes;
  std::vector<Span> constants;  // of the library that it is part of
};

struct Event {
  Context* context;
  bool timing;
  std::optional<std::chrono::steady_clock::time_point> recorded;
};

// Operations of streams, done at once or recorded in graphs.
struct KernelOperation {
  CUfunction function;
  std::string name;
  uint32_t blocks, threads, shared_bytes;
  std::vector<std::byte> arguments;  // one after another, at offsets
  std::vector<size_t> offsets;
};
struct CopyOperation {  // of host memory where the address of the device is 0
  CUdeviceptr to_device, from_device;
  void* to_host;
  const void* from_host;
  size_t bytes;
};
struct SetOperation {
  CUdeviceptr to;
  uint32_t value;
  size_t count;
};
struct RecordOperation {
  CUevent event;
};
using Operation = std::variant<KernelOperation, CopyOperation, SetOperation, RecordOperation>;

struct Graph {
  Context* context;
  std::vector<Operation> operations;
};

struct Stream {
  Context* context;
  std::optional<Graph> capture;  // while it captures
  bool invalid = false;          // the capture is
  std::thread::id thread;        // that began it
};

inline uint64_t next_handle = 0x1000;  // of all kinds of objects

template <typename Handle, typename Object>
class Table {
 public:
  Handle Add(Object object) {
    const uint64_t handle = next_handle += 0x10;
    objects_.emplace(handle, std::move(object));
    return std::bit_cast<Handle>(handle);
  }
  Object* Find(Handle handle) {
    const auto found = objects_.find(std::bit_cast<uint64_t>(handle));
    return found == objects_.end() ? nullptr : &found->second;
  }
  bool Erase(Handle handle) { return objects_.erase(std::bit_cast<uint64_t>(handle)) != 0; }
  void EraseOf(const Context* context) {
    std::erase_if(objects_, [&](const auto& item) { return item.second.context == context; });
  }
  std::map<uint64_t, Object>& objects() { return objects_; }

 private:
  std::map<uint64_t, Object> objects_;
};

struct Driver {
  std::mutex mutex;
  bool initialized = false;
  Settings settings;
  Memory memory;
  std::array<Context, kMostDevices> contexts;
  Table<CUmodule, Module> modules;
  Table<CUfunction, Function> functions;
  Table<CUstream, Stream> streams;
  Table<CUevent, Event> events;
  Table<CUgraph, Graph> graphs;
  Table<CUgraphExec, Graph> execs;
  std::string report;
  uint64_t launches = 0;

  bool Retained() const;  // some device's context is
};

Driver& TheDriver();

// Reads the environment; on an error *problem says which variable is wrong.
bool ReadSettings(Settings* settings, std::string* problem);

// A call of the driver: holds its mutex. `result` is what it must return, unless CUDA_SUCCESS.
class Call {
 public:
  explicit Call(bool needs_context = true);
  Driver* operator->() const { return &driver_; }
  Driver& operator*() const { return driver_; }
  // For calls that release things, after a failed launch, too: whether there is a context,
  bool MayRelease() const {
    return driver_.initialized && context != nullptr && context->retains > 0;
  }
  // and what such a call returns: `code`, or, if that is CUDA_SUCCESS, the error of the context.
  CUresult Released(CUresult code) const { return code != CUDA_SUCCESS ? code : result; }

  CUresult result = CUDA_SUCCESS;
  Context* context = nullptr;  // the current one

 private:
  Driver& driver_;
  std::lock_guard<std::mutex> lock_;
};

// The current contexts of this thread, the last the innermost.
std::vector<Context*>& CurrentContexts();

// Does it now. A failure is the context's from now on.
void Perform(Driver* driver, Context* context, const Operation& operation);

// Does it, or records it if the stream captures. `stream` may be null: the context's own.
CUresult Submit(const Call& call, CUstream stream, Operation operation);

// Whether this thread captures on some stream: it may then not allocate or free. The captures
// become invalid.
bool RefusedByCapture(Driver* driver);

// Gives up what a context holds.
void Reset(Driver* driver, Context* context);

}  // namespace quench::emulated
