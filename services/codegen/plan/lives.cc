#include "services/codegen/plan/lives.h"

#include <algorithm>
#include <vector>

namespace quench::codegen {
namespace {

// A sequence of steps, by the control steps that it lies in: their numbers and the first inside.
struct Span {
  int first = 0, last = 0;
};
using Path = std::vector<Span>;

class Counter {
 public:
  explicit Counter(Program& program) : program_(program), uses_(program.storages.size()) {}

  std::map<int, int> Run() {
    Number(program_.steps);
    program_.num_positions = next_;
    Path path;
    Collect(program_.steps, path);
    for (size_t i = 0; i < uses_.size(); ++i) SetLife(program_.storages[i], uses_[i]);
    return std::move(moved_);
  }

 private:
  struct Use {
    Path path;  // of control steps around, outermost first
    int position = 0;
  };

  void Number(Steps& steps) {
    for (Step& step : steps) {
      const int first = next_;
      ForEachInner(step, [this](Steps& inner) { Number(inner); });
      const int old = step.position;
      step.position = next_++;
      firsts_[step.position] = first;
      if (old >= 0) moved_[old] = step.position;
    }
  }

  void Collect(const Steps& steps, Path& path) {
    for (const Step& step : steps) {
      std::visit([&](const auto& action) { Add(step, action, path); }, step.action);
      path.push_back({firsts_.at(step.position), step.position});
      ForEachInner(step, [&](const Steps& inner) { Collect(inner, path); });
      path.pop_back();
    }
  }

  void UseStorage(int storage, int position, const Path& path) {
    if (storage >= 0) uses_[static_cast<size_t>(storage)].push_back({path, position});
  }
  void UseBuffer(int buffer, int position, const Path& path) {
    if (buffer >= 0)
      UseStorage(program_.buffers[static_cast<size_t>(buffer)].storage, position, path);
  }

  void Add(const Step& step, const CallStep& call, const Path& path) {
    for (const int buffer : call.buffers) UseBuffer(buffer, step.position, path);
    UseStorage(call.scratch_storage, step.position, path);
  }
  void Add(const Step& step, const AllocateStep& allocate, const Path& path) {
    UseStorage(allocate.storage, step.position, path);
  }
  void Add(const Step& step, const FreeStep& free, const Path& path) {
    UseStorage(free.storage, step.position, path);
  }
  void Add(const Step& step, const MoveStep& move, const Path& path) {
    UseStorage(move.from, step.position, path);
    UseStorage(move.to, step.position, path);
  }
  void Add(const Step& step, const TransferStep& transfer, const Path& path) {
    UseBuffer(transfer.from, step.position, path);
    UseBuffer(transfer.to, step.position, path);
  }
  void Add(const Step& step, const CopyStep& copy, const Path& path) {
    UseBuffer(copy.from, step.position, path);
    UseBuffer(copy.to, step.position, path);
  }
  void Add(const Step& step, const AppendStep& append, const Path& path) {
    UseBuffer(append.from, step.position, path);
    UseStorage(append.storage, step.position, path);
  }
  void Add(const Step& step, const TapStep& tap, const Path& path) {
    UseBuffer(tap.buffer, step.position, path);
  }
  void Add(const Step&, const BeginStep&, const Path&) {}
  // Read before the branches, whose numbers come first.
  void Add(const Step& step, const IfStep& branches, const Path& path) {
    UseBuffer(branches.condition, firsts_.at(step.position), path);
    UseBuffer(branches.condition, step.position, path);
  }
  void Add(const Step& step, const LoopStep& loop, const Path& path) {
    for (const int buffer : {loop.trip_count, loop.condition, loop.iteration, loop.condition_in}) {
      UseBuffer(buffer, firsts_.at(step.position), path);
      UseBuffer(buffer, step.position, path);
    }
    UseBuffer(loop.condition_out, step.position, path);
  }
  void Add(const Step&, const BandsStep&, const Path&) {}

  // A storage that one sequence alone uses lives there from its first use to its last; a use in a sequence further inside
  // lasts as long as the whole step around that.
  static void SetLife(Storage& storage, const std::vector<Use>& uses) {
    storage.begin = 1;
    storage.end = 0;
    if (uses.empty()) return;
    size_t depth = uses[0].path.size();
    for (const Use& use : uses) {
      depth = std::min(depth, use.path.size());
      for (size_t i = 0; i < depth; ++i) {
        if (use.path[i].last != uses[0].path[i].last) depth = i;
      }
    }
    bool fresh = true;
    for (const Use& use : uses) {
      const bool inside = use.path.size() > depth;
      const int begin = inside ? use.path[depth].first : use.position;
      const int end = inside ? use.path[depth].last : use.position;
      storage.begin = fresh ? begin : std::min(storage.begin, begin);
      storage.end = fresh ? end : std::max(storage.end, end);
      fresh = false;
    }
  }

  Program& program_;
  std::vector<std::vector<Use>> uses_;  // by storage
  std::map<int, int> firsts_;           // the first step inside, by step
  std::map<int, int> moved_;
  int next_ = 0;
};

}  // namespace

std::map<int, int> CountLives(Program& program) { return Counter(program).Run(); }

}  // namespace quench::codegen
