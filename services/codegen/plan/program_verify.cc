#include "services/codegen/plan/program_verify.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "services/codegen/plan/laid_out_sizes.h"
#include "services/codegen/plan/place.h"

namespace quench::codegen {
namespace {

class ProgramVerifier {
 public:
  ProgramVerifier(const Program& program, size_t weights) : program_(program), weights_(weights) {}

  absl::Status Run() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (!IsStorage(buffer.storage)) {
        Add("buffer b{} lies in no storage", i);
      } else if (const Shape& storage =
                     program_.storages[static_cast<size_t>(buffer.storage)].shape;
                 IsFixed(storage) && IsFixed(buffer.shape) &&
                 buffer.offset + BytesAt(buffer.shape, {}) > BytesAt(storage, {})) {
        Add("buffer b{} ends {} bytes into storage s{}, which has {}", i,
            buffer.offset + BytesAt(buffer.shape, {}), buffer.storage, BytesAt(storage, {}));
      }
    }
    for (size_t i = 0; i < program_.storages.size(); ++i) {
      const Storage& storage = program_.storages[i];
      if (storage.home == Home::kWeights && !IsWeight(storage.index))
        Add("storage s{} is weight entry {}, there are {}", i, storage.index, weights_);
    }
    if (!problems_.ok()) return problems_.Finish();
    CheckSteps(program_.steps);
    CheckPlaces();
    return problems_.Finish();
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    problems_.Add(Internal("{}", fmt::format(format, std::forward<Args>(args)...)));
  }
  bool IsStorage(int id) const {
    return id >= 0 && id < static_cast<int>(program_.storages.size());
  }
  bool IsBuffer(int id) const { return id >= 0 && id < static_cast<int>(program_.buffers.size()); }
  const Buffer& BufferAt(int id) const { return program_.buffers[static_cast<size_t>(id)]; }
  bool IsWeight(int id) const { return id >= 0 && id < static_cast<int>(weights_); }

  void CheckStorage(int position, int id) {
    if (!IsStorage(id)) return Add("step {} names storage s{}", position, id);
    const Storage& storage = program_.storages[static_cast<size_t>(id)];
    if (storage.home != Home::kArena) return;
    if (position < storage.begin || position > storage.end) {
      Add("step {} uses storage s{}, which lives {}..{}", position, id, storage.begin, storage.end);
    }
  }
  void CheckBuffer(int position, int id) {
    if (!IsBuffer(id)) return Add("step {} names buffer b{}", position, id);
    CheckStorage(position, program_.buffers[static_cast<size_t>(id)].storage);
  }

  static int FirstPosition(const Step& step) {
    int first = step.position;
    ForEachInner(step, [&](const Steps& inner) {
      if (!inner.empty()) first = std::min(first, FirstPosition(inner.front()));
    });
    return first;
  }

  void CheckSteps(const Steps& steps) {
    for (const Step& step : steps) {
      std::visit([&](const auto& action) { Check(step, action); }, step.action);
      ForEachInner(step, [this](const Steps& inner) { CheckSteps(inner); });
    }
  }

  void Check(const Step& step, const BeginStep&) {
    if (step.node < 0 || step.node >= static_cast<int>(program_.nodes.size()))
      Add("step {} begins node {}", step.position, step.node);
  }
  void Check(const Step& step, const CallStep& call) {
    for (const int id : call.buffers) CheckBuffer(step.position, id);
    for (const int id : call.packs) {
      if (!IsWeight(id)) Add("step {} names weight entry w{}", step.position, id);
    }
    if (call.kernel.empty() && !call.buffers.empty())
      Add("step {} calls a kernel without a plan", step.position);
    if (call.parallel && call.kernel.tasks.is(1))
      Add("step {} runs one task on many threads", step.position);
    if (call.updates && call.first_output == static_cast<int>(call.buffers.size()))
      Add("step {} updates nothing", step.position);
    if (call.device_kernel) Add("step {} has no place", step.position);
    for (const int id : call.buffers) CheckSide(step.position, id, call.on_device);
    for (const int id : call.buffers) {
      if (call.on_device && IsBuffer(id) && BufferAt(id).offset % kDeviceAlignment != 0)
        Add("step {} uses b{} on the GPU, which is not aligned to {} bytes", step.position, id,
            kDeviceAlignment);
    }
  }
  void Check(const Step& step, const AllocateStep& allocate) {
    CheckStorage(step.position, allocate.storage);
  }
  void Check(const Step& step, const FreeStep& free) { CheckStorage(step.position, free.storage); }
  void Check(const Step& step, const MoveStep& move) {
    CheckStorage(step.position, move.from);
    CheckStorage(step.position, move.to);
  }
  void CheckSide(int position, int id, bool device) {
    if (!IsBuffer(id)) return;
    const int storage = program_.buffers[static_cast<size_t>(id)].storage;
    if (program_.storages[static_cast<size_t>(storage)].device != device)
      Add("step {} uses b{}, which is in {} memory", position, id, device ? "host" : "device");
  }
  void Check(const Step& step, const TransferStep& transfer) {
    CheckBuffer(step.position, transfer.from);
    CheckBuffer(step.position, transfer.to);
    if (!IsBuffer(transfer.from) || !IsBuffer(transfer.to)) return;
    CheckSide(step.position, transfer.to, !IsOnDevice(transfer.from));
  }
  bool IsOnDevice(int id) const {
    return program_.storages[static_cast<size_t>(program_.buffers[static_cast<size_t>(id)].storage)]
        .device;
  }
  void Check(const Step& step, const CopyStep& copy) {
    CheckBuffer(step.position, copy.from);
    CheckBuffer(step.position, copy.to);
    if (IsBuffer(copy.from)) CheckSide(step.position, copy.to, IsOnDevice(copy.from));
  }
  void Check(const Step& step, const AppendStep& append) {
    CheckBuffer(step.position, append.from);
    CheckStorage(step.position, append.storage);
  }
  void Check(const Step& step, const TapStep& tap) {
    CheckBuffer(step.position, tap.buffer);
    CheckSide(step.position, tap.buffer, /*device=*/false);
  }
  void Check(const Step& step, const IfStep& branches) {
    // The condition is read before the branches, whose positions come first.
    CheckBuffer(FirstPosition(step), branches.condition);
  }
  // The count and the first condition are read before the body, whose positions come first; the others
  // belong to every iteration.
  void Check(const Step& step, const LoopStep& loop) {
    if (loop.fixed_trips && (loop.trip_count >= 0 || loop.condition >= 0))
      Add("step {} has two numbers of iterations", step.position);
    if (loop.iteration_slot < 0) Add("step {} counts in no slot", step.position);
    CheckScalar(FirstPosition(step), loop.trip_count, DataType::kI64);
    CheckScalar(FirstPosition(step), loop.condition, DataType::kBool);
    for (const int position : {FirstPosition(step), step.position}) {
      CheckScalar(position, loop.iteration, DataType::kI64);
      CheckScalar(position, loop.condition_in, DataType::kBool);
    }
    CheckScalar(step.position, loop.condition_out, DataType::kBool);
  }
  void CheckScalar(int position, int buffer, DataType dtype) {
    if (buffer == -1) return;
    CheckBuffer(position, buffer);
    if (!IsBuffer(buffer)) return;
    const Shape& shape = program_.buffers[static_cast<size_t>(buffer)].shape;
    const bool one =
        std::all_of(shape.dims.begin(), shape.dims.end(), [](Dim dim) { return dim.is(1); });
    if (shape.dtype != dtype || !one)
      Add("step {} takes b{} for one {}", position, buffer, DataTypeName(dtype));
  }
  // Each call has all its tasks in order, and finds the rows that it reads.
  void Check(const Step& step, const BandsStep& bands) {
    std::map<int, int64_t> done;  // tasks, by call
    for (size_t i = 0; i < bands.body.size(); ++i) {
      const Step& inner = bands.body[i];
      const auto* call = inner.As<CallStep>();
      if (call == nullptr) continue;
      if (!call->rows || !call->kernel.tasks.is(static_cast<int64_t>(call->rows->needs.size())))
        return Add("step {} does not go through rows", inner.position);
      done[static_cast<int>(i)] = 0;
      for (const int id : call->buffers) {
        CheckBuffer(FirstPosition(step), id);
        CheckBuffer(step.position, id);
      }
    }
    for (const BandsStep::Range& range : bands.order) {
      const auto at = done.find(range.call);
      if (at == done.end() || range.begin != at->second || range.end <= range.begin ||
          range.end > static_cast<int64_t>(RowsOf(bands, range.call).needs.size()))
        return Add("step {} has tasks {}..{} out of order", step.position, range.begin, range.end);
      at->second = range.end;
      if (at == done.begin()) continue;
      const auto [maker, made] = *std::prev(at);
      const int64_t rows =
          made == 0 ? 0 : RowsOf(bands, maker).makes[static_cast<size_t>(made - 1)];
      if (RowsOf(bands, range.call).needs[static_cast<size_t>(range.end - 1)] > rows) {
        Add("step {} reads rows that are not there",
            bands.body[static_cast<size_t>(range.call)].position);
      }
    }
    for (const auto& [call, tasks] : done) {
      if (tasks != static_cast<int64_t>(RowsOf(bands, call).needs.size()))
        Add("step {} leaves tasks out", bands.body[static_cast<size_t>(call)].position);
    }
  }
  static const RowOrder& RowsOf(const BandsStep& bands, int call) {
    return *bands.body[static_cast<size_t>(call)].As<CallStep>()->rows;
  }

  // Places are by offset: only those that begin before another ends can lie over it.
  void CheckPlaces() {
    CheckPlaces(program_.typical_places);
    CheckPlaces(program_.typical_device_places);
  }
  void CheckPlaces(const std::vector<PlacedStorage>& places) {
    for (size_t i = 0; i < places.size(); ++i) {
      const Storage& a = program_.storages[static_cast<size_t>(places[i].storage)];
      for (size_t j = i + 1; j < places.size(); ++j) {
        if (places[j].offset >= places[i].offset + places[i].bytes) break;
        const Storage& b = program_.storages[static_cast<size_t>(places[j].storage)];
        // A tensor without elements lies nowhere.
        if (places[j].bytes > 0 && a.begin <= b.end && b.begin <= a.end)
          Add("storages s{} and s{} are alive at once in the same memory", places[i].storage,
              places[j].storage);
      }
    }
  }

  const Program& program_;
  const size_t weights_;
  StatusCollector problems_;
};

}  // namespace

absl::Status VerifyProgram(const Program& program, size_t weight_entries) {
  return ProgramVerifier(program, weight_entries).Run();
}

}  // namespace quench::codegen
