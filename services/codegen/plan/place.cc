// One walk over the steps, which knows of every storage where its contents are up to date: on the host, on the device,
// or on both.
#include "services/codegen/plan/place.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "common/runtime/abi.h"
#include "services/codegen/plan/laid_out_sizes.h"
#include "services/codegen/plan/lives.h"
#include "services/codegen/schedule/schedule.h"
#include "services/codegen/schedule/shared_loops.h"

namespace quench::codegen {
namespace {

constexpr uint8_t kHost = QUENCH_SIDE_HOST, kDevice = QUENCH_SIDE_DEVICE, kBoth = kHost | kDevice;

// Where each storage of the program as it was is up to date, by its id: bits of kBoth.
using Sides = std::vector<uint8_t>;

// Microseconds, roughly those of a card on PCIe 3: what matters is that a transfer costs as much as thousands of
// operations, and a launch as much as hundreds.
constexpr double kLaunch = 4, kTransfer = 15, kTransferBytes = 12e3;
constexpr double kEnoughTasks = 2560;  // fewer leave the card idle
constexpr double kSlowerHost = 30;     // one core than the card
// Addresses of buffers among the arguments of a kernel, which have 4,352 bytes in all (PTX ISA, "Kernel Function
// Parameters"), sizes included.
constexpr size_t kMostAddresses = 400;

class Placer {
 public:
  Placer(Program& program, const SymbolTable& symbols, bool all)
      : program_(program), slots_(TypicalSlots(symbols)), all_(all) {}

  void Run() {
    const size_t count = program_.storages.size();
    twins_.assign(count, -1);
    CountInterface();
    Sides sides(count, 0);
    for (size_t i = 0; i < count; ++i) {
      const Home home = program_.storages[i].home;
      if (home == Home::kInput || home == Home::kWeights) sides[i] = kBoth;
    }
    Steps steps = Walk(std::move(program_.steps), sides);
    FinishOutputs(sides, steps);
    program_.steps = std::move(steps);
    const std::map<int, int> moved = CountLives(program_);
    ShowTwins(moved);
  }

 private:
  Storage& StorageAt(int id) { return program_.storages[static_cast<size_t>(id)]; }
  const Buffer& BufferAt(int id) const { return program_.buffers[static_cast<size_t>(id)]; }
  int StorageOf(int buffer) const { return BufferAt(buffer).storage; }
  bool OnHeap(int storage) { return StorageAt(storage).home == Home::kHeap; }

  void CountInterface() {
    int inputs = 0, outputs = 0;
    for (const Storage& storage : program_.storages) {
      if (storage.home == Home::kInput) inputs = std::max(inputs, storage.index + 1);
      if (storage.home == Home::kOutput) outputs = std::max(outputs, storage.index + 1);
      outputs = std::max(outputs, storage.output + 1);
    }
    program_.input_sides.assign(static_cast<size_t>(inputs), 0);
    program_.output_sides.assign(static_cast<size_t>(outputs), kHost);
  }

  // ---- twins ----

  // The copy of a storage in the GPU's memory.
  int TwinOf(int storage) {
    int& twin = twins_[static_cast<size_t>(storage)];
    if (twin >= 0) return twin;
    Storage copy = StorageAt(storage);
    copy.device = true;
    twin = static_cast<int>(program_.storages.size());
    program_.storages.push_back(std::move(copy));
    return twin;
  }

  int On(uint8_t side, int buffer) {
    if (side == kHost) return buffer;
    const auto found = twin_buffers_.find(buffer);
    if (found != twin_buffers_.end()) return found->second;
    Buffer copy = BufferAt(buffer);
    copy.storage = TwinOf(copy.storage);
    program_.buffers.push_back(std::move(copy));
    return twin_buffers_[buffer] = static_cast<int>(program_.buffers.size()) - 1;
  }

  // A buffer that covers a storage of the program as it was.
  int Whole(int storage) {
    const auto found = whole_.find(storage);
    if (found != whole_.end()) return found->second;
    const Shape shape = StorageAt(storage).shape;
    int named = -1;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.storage != storage) continue;
      named = static_cast<int>(i);
      if (buffer.offset == 0 && buffer.shape == shape) return whole_[storage] = named;
    }
    const std::string name = named < 0 ? "" : BufferAt(named).name;
    program_.buffers.push_back({name, shape, storage});
    return whole_[storage] = static_cast<int>(program_.buffers.size()) - 1;
  }

  // ---- moves ----

  // Makes the storage up to date on `side` if it is so anywhere.
  void Bring(int storage, uint8_t side, Sides& sides, int node, Steps& out) {
    uint8_t& there = sides[static_cast<size_t>(storage)];
    const Storage& of = StorageAt(storage);
    if (of.home == Home::kInput) program_.input_sides[static_cast<size_t>(of.index)] |= side;
    if (there == 0 || (there & side) != 0) return;
    const int whole = Whole(storage);
    const uint8_t from = there;
    Step step;
    step.position = -1;
    step.node = node;
    step.action = TransferStep{On(from, whole), On(side, whole)};
    out.push_back(std::move(step));
    there |= side;
  }

  bool Covers(int buffer) {
    const Buffer& part = BufferAt(buffer);
    const Storage& whole = StorageAt(part.storage);
    if (part.offset != 0) return false;
    if (part.shape == whole.shape) return true;
    return IsFixed(part.shape) && IsFixed(whole.shape) &&
           BytesAt(part.shape, {}) >= BytesAt(whole.shape, {});
  }

  // A write to part of a storage leaves the rest as it is, and so does one that is not to `all` of the buffer.
  void Write(int buffer, uint8_t side, Sides& sides, int node, Steps& out, bool all) {
    const int storage = StorageOf(buffer);
    if (!all || !Covers(buffer)) Bring(storage, side, sides, node, out);
    sides[static_cast<size_t>(storage)] = side;
  }

  // ---- costs ----

  double TransferCost(int storage) {
    return kTransfer +
           static_cast<double>(BytesAt(StorageAt(storage).shape, slots_)) / kTransferBytes;
  }

  bool Faster(const CallStep& call, const Sides& sides) {
    const KernelPlan& kernel = *call.device_kernel;
    const double tasks = static_cast<double>(std::max<int64_t>(
        1, kernel.tasks.is_static() ? kernel.tasks.value()
                                    : slots_[static_cast<size_t>(kernel.tasks.symbol())]));
    double device =
        kLaunch + call.cost * std::max(1.0, kEnoughTasks /
                                                (tasks * static_cast<double>(TaskThreads(kernel))));
    double host = call.cost * kSlowerHost;
    bool chain = false;
    for (int i = 0; i < call.first_output; ++i) {
      const int storage = StorageOf(call.buffers[static_cast<size_t>(i)]);
      const uint8_t there = sides[static_cast<size_t>(storage)];
      if (there == kHost) device += TransferCost(storage);
      if (there == kDevice) host += TransferCost(storage);
      chain = chain || there == kDevice;
    }
    for (size_t i = static_cast<size_t>(call.first_output); chain && i < call.buffers.size(); ++i)
      host += TransferCost(StorageOf(call.buffers[i]));  // others will want it back
    return device < host;
  }

  bool CanRunThere(const CallStep& call) {
    if (!call.device_kernel || call.device_kernel->empty() || call.scratch_storage >= 0)
      return false;
    if (!call.device_kernel->scratch_bytes.is_static() || DeviceThreads(*call.device_kernel) == 0)
      return false;
    if (call.buffers.size() + call.packs.size() > kMostAddresses) return false;
    return std::none_of(call.buffers.begin(), call.buffers.end(),
                        [this](int buffer) { return OnHeap(StorageOf(buffer)); });
  }

  // ---- steps ----

  Steps Walk(Steps steps, Sides& sides) {
    Steps out;
    for (Step& step : steps) {
      std::visit([&](auto& action) { Place(step, action, sides, out); }, step.action);
      out.push_back(std::move(step));
    }
    return out;
  }

  void Place(Step& step, CallStep& call, Sides& sides, Steps& out) {
    const bool only_there = call.kernel.empty() && call.device_kernel.has_value();
    call.on_device = CanRunThere(call) && (all_ || only_there || Faster(call, sides));
    const uint8_t side = call.on_device ? kDevice : kHost;
    const auto first = static_cast<size_t>(call.first_output);
    for (size_t i = 0; i < call.buffers.size(); ++i) {
      const int storage = StorageOf(call.buffers[i]);
      if (OnHeap(storage)) continue;
      if (i < first) {
        Bring(storage, side, sides, step.node, out);
      } else {
        Write(call.buffers[i], side, sides, step.node, out, /*all=*/!call.updates);
      }
    }
    for (int& buffer : call.buffers) buffer = On(side, buffer);
    if (call.on_device) {
      call.kernel = *std::move(call.device_kernel);
      call.parallel = call.one_range = false;
      call.rows.reset();
    }
    call.device_kernel.reset();
  }
  void Place(Step& step, CopyStep& copy, Sides& sides, Steps& out) {
    const int from = StorageOf(copy.from), to = StorageOf(copy.to);
    const bool heap = OnHeap(from) || OnHeap(to);
    const bool there =
        !heap && (sides[static_cast<size_t>(from)] & kDevice) != 0 &&
        !(sides[static_cast<size_t>(from)] == kBoth && sides[static_cast<size_t>(to)] == kHost);
    const uint8_t side = there ? kDevice : kHost;
    if (!OnHeap(from)) Bring(from, side, sides, step.node, out);
    if (!OnHeap(to)) Write(copy.to, side, sides, step.node, out, /*all=*/true);
    copy.from = On(side, copy.from);
    copy.to = On(side, copy.to);
  }
  void Place(Step& step, AppendStep& append, Sides& sides, Steps& out) {
    if (const int from = StorageOf(append.from); !OnHeap(from))
      Bring(from, kHost, sides, step.node, out);
  }
  void Place(Step& step, TapStep& tap, Sides& sides, Steps& out) {
    if (const int storage = StorageOf(tap.buffer); !OnHeap(storage))
      Bring(storage, kHost, sides, step.node, out);
  }
  void Place(Step&, BeginStep&, Sides&, Steps&) {}
  void Place(Step&, AllocateStep&, Sides&, Steps&) {}
  void Place(Step&, FreeStep&, Sides&, Steps&) {}
  void Place(Step&, MoveStep&, Sides&, Steps&) {}
  void Place(Step&, TransferStep&, Sides&, Steps&) {}
  void Place(Step&, BandsStep&, Sides&, Steps&) {}  // formed for CPUs alone

  void BringScalar(int buffer, Sides& sides, int node, Steps& out) {
    if (buffer >= 0 && !OnHeap(StorageOf(buffer)))
      Bring(StorageOf(buffer), kHost, sides, node, out);
  }

  void Place(Step& step, IfStep& branches, Sides& sides, Steps& out) {
    BringScalar(branches.condition, sides, step.node, out);
    Sides then_sides = sides, else_sides = sides;
    branches.then_steps = Walk(std::move(branches.then_steps), then_sides);
    branches.else_steps = Walk(std::move(branches.else_steps), else_sides);
    for (size_t i = 0; i < sides.size(); ++i) {
      const uint8_t common = then_sides[i] & else_sides[i];
      const uint8_t any = then_sides[i] | else_sides[i];
      sides[i] = common;
      if (common != 0 || any == 0) continue;
      // Written on one side by one branch, and on the other side or not at all by the other.
      const uint8_t side = (any & kDevice) != 0 ? kDevice : kHost;
      Bring(static_cast<int>(i), side, then_sides, step.node, branches.then_steps);
      Bring(static_cast<int>(i), side, else_sides, step.node, branches.else_steps);
      sides[i] = side;
    }
  }

  // A body finds in each iteration what it found in the first: storages from outside that it writes are up to
  // date on one side at its beginning and its end.
  void Place(Step& step, LoopStep& loop, Sides& sides, Steps& out) {
    BringScalar(loop.trip_count, sides, step.node, out);
    BringScalar(loop.condition, sides, step.node, out);
    const std::set<int> scalars = ScalarsOf(loop);
    std::map<int, uint8_t> kept;
    const int first = FirstOf(loop.body);
    for (const int storage : WrittenIn(loop.body)) {
      if (OnHeap(storage) || StorageAt(storage).begin > first) continue;  // made inside
      const bool host = scalars.contains(storage) || !UsedThere(loop.body, storage);
      kept[storage] = host ? kHost : kDevice;
    }
    for (const int storage : scalars) kept[storage] = kHost;
    for (const auto& [storage, side] : kept) {
      Bring(storage, side, sides, step.node, out);
      sides[static_cast<size_t>(storage)] = side;
    }
    const Sides before = sides;
    loop.body = Walk(std::move(loop.body), sides);
    BringScalar(loop.condition_out, sides, step.node, loop.body);
    for (const auto& [storage, side] : kept) Bring(storage, side, sides, step.node, loop.body);
    sides = before;
  }

  static int FirstOf(const Steps& steps) {
    int first = std::numeric_limits<int>::max();
    ForEachStep(steps, [&](const Step& step) { first = std::min(first, step.position); });
    return first;
  }

  std::set<int> ScalarsOf(const LoopStep& loop) const {
    std::set<int> scalars;
    for (const int buffer : {loop.iteration, loop.condition_in}) {
      if (buffer >= 0) scalars.insert(StorageOf(buffer));
    }
    return scalars;
  }

  std::set<int> WrittenIn(const Steps& steps) const {
    std::set<int> written;
    ForEachStep(steps, [&](const Step& step) {
      if (const auto* call = step.As<CallStep>(); call != nullptr) {
        for (size_t i = static_cast<size_t>(call->first_output); i < call->buffers.size(); ++i)
          written.insert(StorageOf(call->buffers[i]));
      } else if (const auto* copy = step.As<CopyStep>(); copy != nullptr) {
        written.insert(StorageOf(copy->to));
      } else if (const auto* loop = step.As<LoopStep>(); loop != nullptr) {
        for (const int storage : ScalarsOf(*loop)) written.insert(storage);
      }
    });
    return written;
  }

  // Whether a call that can run on the GPU uses the storage.
  bool UsedThere(const Steps& steps, int storage) {
    bool used = false;
    ForEachStep(steps, [&](const Step& step) {
      const auto* call = step.As<CallStep>();
      if (call == nullptr || !CanRunThere(*call)) return;
      used = used || std::any_of(call->buffers.begin(), call->buffers.end(),
                                 [&](int buffer) { return StorageOf(buffer) == storage; });
    });
    return used;
  }

  // ---- the end ----

  void FinishOutputs(const Sides& sides, Steps&) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const Storage& storage = program_.storages[i];
      if (storage.home == Home::kOutput && (sides[i] & kDevice) != 0)
        program_.output_sides[static_cast<size_t>(storage.index)] = kDevice;
    }
  }

  // Values are shown from where their node has left them.
  void ShowTwins(const std::map<int, int>& moved) {
    std::set<int> written;
    ForEachStep(program_.steps, [&](const Step& step) {
      const auto* call = step.As<CallStep>();
      if (call == nullptr || !call->on_device) return;
      for (size_t i = static_cast<size_t>(call->first_output); i < call->buffers.size(); ++i)
        written.insert(StorageOf(call->buffers[i]));
    });
    for (ShownValue& value : program_.shown) {
      const int twin = twins_[static_cast<size_t>(StorageOf(value.buffer))];
      if (twin >= 0 && written.contains(twin)) value.buffer = On(kDevice, value.buffer);
      const auto later = moved.lower_bound(value.position);
      value.position = later == moved.end() ? program_.num_positions : later->second;
    }
  }

  Program& program_;
  const std::vector<int64_t> slots_;
  const bool all_;
  std::vector<int> twins_;           // by storage of the program as it was; -1: none
  std::map<int, int> twin_buffers_;  // by buffer
  std::map<int, int> whole_;         // by storage
};

}  // namespace

int64_t TaskThreads(const KernelPlan& kernel) {
  if (kernel.block_threads > 0) return kernel.block_threads;
  return kernel.nest != nullptr ? kernel.nest->task_threads : 1;
}

int64_t DeviceThreads(const KernelPlan& kernel) {
  constexpr int64_t kMost = 1 << 20, kMostScratch = 256 << 20, kMostTasks = 16384;
  const int64_t scratch = kernel.scratch_bytes.is_static() ? kernel.scratch_bytes.value() : 0;
  if (scratch == 0) return kMost;
  int64_t tasks = std::min(kMostScratch / scratch, kMostTasks);
  if (kernel.tasks.is_static())
    tasks =
        std::min(tasks, (std::max<int64_t>(kernel.tasks.value(), 1) + kWarp - 1) / kWarp * kWarp);
  return tasks * TaskThreads(kernel) / kWarp * kWarp;
}

void PlaceOnDevice(Program& program, std::vector<KernelReport>& reports, const SymbolTable& symbols,
                   bool all) {
  Placer(program, symbols, all).Run();
  std::set<int> host;
  ForEachStep(program.steps, [&](const Step& step) {
    const auto* call = step.As<CallStep>();
    if (call != nullptr && !call->on_device &&
        call->first_output < static_cast<int>(call->buffers.size()))
      host.insert(step.node);
  });
  for (const int node : host) {
    if (node >= 0 && node < static_cast<int>(reports.size()))
      reports[static_cast<size_t>(node)].reason += ", on the host";
  }
}

}  // namespace quench::codegen
