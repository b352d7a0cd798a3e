#include "services/codegen/plan/bands.h"

#include <algorithm>
#include <utility>

#include "services/codegen/plan/laid_out_sizes.h"

namespace quench::codegen {
namespace {

constexpr double kStaysInL2 = 0.25;   // an image of this share stays until it is read anyway
constexpr double kBandShare = 0.2;    // what is made and not read yet, of L2
constexpr double kMuch = 0.4;         // of a call's time
constexpr double kMostGrowth = 1.15;  // of memory
constexpr size_t kMostCalls = 8;      // each turn of each is code
constexpr int64_t kMostTurns = 64;

using Lives = std::vector<std::pair<int, int>>;  // of storages

class BandFormer {
 public:
  BandFormer(Program& program, std::vector<KernelReport>& kernels, const Target& target)
      : program_(program),
        kernels_(kernels),
        l2_(static_cast<double>(target.l2_bytes)),
        bandwidth_(target.gbytes * 1e3) {
    for (const Storage& storage : program.storages) lives_.emplace_back(storage.begin, storage.end);
    room_ = static_cast<int64_t>(kMostGrowth * static_cast<double>(Peak(lives_)));
  }

  void Run() {
    Steps result;
    Steps& steps = program_.steps;
    for (size_t i = 0; i < steps.size();) {
      const size_t end = EndOfBands(steps, i);
      if (end == i) {
        result.push_back(std::move(steps[i++]));
        continue;
      }
      BandsStep bands;
      const Step& last = steps[end - 1];
      Step step{last.position, last.node, {}};
      for (; i < end; ++i) bands.body.push_back(std::move(steps[i]));
      Order(bands);
      step.action = std::move(bands);
      result.push_back(std::move(step));
    }
    steps = std::move(result);
    for (size_t i = 0; i < lives_.size(); ++i) {
      program_.storages[i].begin = lives_[i].first;
      program_.storages[i].end = lives_[i].second;
    }
  }

 private:
  int StorageOf(int buffer) const { return program_.buffers[static_cast<size_t>(buffer)].storage; }
  int OutputOf(const CallStep& call) const {
    return call.buffers[static_cast<size_t>(call.first_output)];
  }
  double BytesOf(int buffer) const {
    return static_cast<double>(BytesAt(program_.buffers[static_cast<size_t>(buffer)].shape, {}));
  }

  // A node's last call, if it goes through rows.
  const CallStep* RowsAt(const Steps& steps, size_t i) const {
    if (i >= steps.size()) return nullptr;
    const auto* call = steps[i].As<CallStep>();
    const bool last = i + 1 == steps.size() || steps[i + 1].node != steps[i].node;
    if (call == nullptr || !call->rows || !last) return nullptr;
    return WritesOver(*call, steps[i].position) ? nullptr : call;
  }
  // A node's only one.
  const CallStep* NextAt(const Steps& steps, size_t i) const {
    const bool begins = i < steps.size() && steps[i].As<BeginStep>() != nullptr;
    return begins ? RowsAt(steps, i + 1) : nullptr;
  }

  // Whether its output may take the memory of an input that nobody reads any more, which others of bands
  // may still read.
  bool WritesOver(const CallStep& call, int position) const {
    if (call.in_place < 0) return false;
    const int input = StorageOf(call.buffers[static_cast<size_t>(call.in_place)]);
    return program_.storages[static_cast<size_t>(input)].end == position;
  }

  // Whether `next` reads the rows that `before` makes, which leave the caches otherwise, and nothing else
  // of what `calls` make.
  bool Continues(const std::vector<const CallStep*>& calls, const CallStep& next) const {
    const CallStep& before = *calls.back();
    const int between = OutputOf(before);
    if (next.buffers[static_cast<size_t>(next.rows->input)] != between) return false;
    if (BytesOf(between) <= kStaysInL2 * l2_) return false;
    if (BytesOf(between) / bandwidth_ < kMuch * next.cost) return false;
    for (size_t i = 0; i < next.buffers.size(); ++i) {
      if (static_cast<int>(i) == next.rows->input) continue;
      for (const CallStep* call : calls) {
        if (StorageOf(next.buffers[i]) == StorageOf(OutputOf(*call))) return false;
      }
    }
    // It must not write anything that the others still read.
    for (const CallStep* call : calls) {
      for (const int buffer : call->buffers) {
        if (StorageOf(buffer) == StorageOf(OutputOf(next))) return false;
      }
    }
    return true;
  }

  // The end of the steps from `first` on that run in bands; `first` if there are none. Their
  // storages then live as long as all of them.
  size_t EndOfBands(const Steps& steps, size_t first) {
    const CallStep* call = RowsAt(steps, first);
    if (call == nullptr) return first;
    std::vector<const CallStep*> calls = {call};
    size_t end = first + 1;
    Lives lives = lives_;
    for (const CallStep* next; (next = NextAt(steps, end)) != nullptr; end += 2) {
      if (calls.size() == kMostCalls || !Continues(calls, *next)) break;
      calls.push_back(next);
      Lives longer = lives_;
      for (const CallStep* each : calls) {
        for (const int buffer : each->buffers) {
          auto& [begin, last] = longer[static_cast<size_t>(StorageOf(buffer))];
          begin = std::min(begin, steps[first].position);
          last = std::max(last, steps[end + 1].position);
        }
      }
      if (Peak(longer) > room_) break;
      lives = std::move(longer);
    }
    if (end == first + 1) return first;
    lives_ = std::move(lives);
    return end;
  }

  // Bytes of the arena that are in use at once, of storages whose size is known.
  int64_t Peak(const Lives& lives) const {
    std::vector<int64_t> change(static_cast<size_t>(program_.num_positions) + 2);
    for (size_t i = 0; i < lives.size(); ++i) {
      const Storage& storage = program_.storages[i];
      if (storage.home != Home::kArena || lives[i].first > lives[i].second ||
          !IsFixed(storage.shape))
        continue;
      const int64_t bytes = BytesAt(storage.shape, {});
      change[static_cast<size_t>(lives[i].first)] += bytes;
      change[static_cast<size_t>(lives[i].second) + 1] -= bytes;
    }
    int64_t used = 0, most = 0;
    for (const int64_t bytes : change) most = std::max(most, used += bytes);
    return most;
  }

  // Runs the tasks of the last call in turns, as many as it takes for the data between calls to
  // stay in a part of L2, and before each turn those tasks of the other calls that it needs.
  void Order(BandsStep& bands) {
    std::vector<int> places;
    std::vector<CallStep*> calls;
    double between = 0;
    for (size_t i = 0; i < bands.body.size(); ++i) {
      auto* call = bands.body[i].As<CallStep>();
      if (call == nullptr) continue;
      call->in_place = -1;  // others may still read it
      kernels_[static_cast<size_t>(bands.body[i].node)].reason += ", in bands";
      if (!calls.empty()) between += BytesOf(OutputOf(*calls.back()));
      places.push_back(static_cast<int>(i));
      calls.push_back(call);
    }
    const auto tasks = static_cast<int64_t>(calls.back()->rows->needs.size());
    const auto turns = std::clamp<int64_t>(static_cast<int64_t>(between / (kBandShare * l2_)) + 1,
                                           1, std::min(tasks, kMostTurns));
    std::vector<int64_t> done(calls.size());
    for (int64_t turn = 1; turn <= turns; ++turn) {
      std::vector<int64_t> until(calls.size());
      until.back() = tasks * turn / turns;
      for (size_t c = calls.size() - 1; c > 0; --c) {
        const RowOrder& reader = *calls[c]->rows;
        const std::vector<int64_t>& makes = calls[c - 1]->rows->makes;
        const int64_t needed = until[c] == 0 ? 0 : reader.needs[static_cast<size_t>(until[c] - 1)];
        const auto made = std::lower_bound(makes.begin(), makes.end(), needed);
        until[c - 1] = needed == 0 ? 0 : made - makes.begin() + 1;
      }
      // Rows below the last that anything reads are made, too.
      if (turn == turns) {
        for (size_t c = 0; c < calls.size(); ++c)
          until[c] = static_cast<int64_t>(calls[c]->rows->makes.size());
      }
      for (size_t c = 0; c < calls.size(); ++c) {
        if (until[c] <= done[c]) continue;
        bands.order.push_back({places[c], done[c], until[c]});
        done[c] = until[c];
      }
    }
  }

  Program& program_;
  std::vector<KernelReport>& kernels_;
  const double l2_, bandwidth_;  // bytes, bytes a microsecond
  Lives lives_;
  int64_t room_ = 0;
};

}  // namespace

void FormBands(Program& program, std::vector<KernelReport>& kernels, const Target& target) {
  BandFormer(program, kernels, target).Run();
}

}  // namespace quench::codegen
