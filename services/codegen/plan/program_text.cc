#include "services/codegen/plan/program_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "services/codegen/plan/laid_out_sizes.h"

namespace quench::codegen {
namespace {

constexpr const char* kHomes[] = {"arena", "input", "output", "weights", "heap"};

class Printer {
 public:
  Printer(const Program& program, const SymbolTable& symbols)
      : program_(program), symbols_(symbols) {}

  std::string Print() {
    for (size_t i = 0; i < program_.storages.size(); ++i) PrintStorage(i);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      Line("b{} s{}{} `{}`: {}", i, buffer.storage,
           buffer.offset == 0 ? "" : fmt::format("+{}", buffer.offset), buffer.name,
           ShapeText(buffer.shape));
    }
    PrintSteps(program_.steps);
    if (!program_.plan.empty()) {
      Line("plan sets {} slots; arena {} bytes at typical sizes, at least {}", program_.num_slots,
           program_.typical_arena_bytes, program_.typical_lower_bound);
    }
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<size_t>(2 * indent_), ' ');
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  std::string DimText(Dim dim) const { return symbols_.ToString(dim); }
  std::string ShapeText(const Shape& shape) const {
    std::vector<std::string> dims;
    for (const Dim dim : shape.dims) dims.push_back(DimText(dim));
    return fmt::format("{}[{}]{}", DataTypeName(shape.dtype), fmt::join(dims, ", "),
                       shape.layout.row_major() ? "" : " " + shape.layout.ToString());
  }

  void PrintStorage(size_t i) {
    const Storage& storage = program_.storages[i];
    std::string line = fmt::format("s{} {}", i, kHomes[static_cast<size_t>(storage.home)]);
    if (storage.home != Home::kArena) line += fmt::format(" {}", storage.index);
    if (storage.begin > storage.end) {
      Line("{} given up", line);
      return;
    }
    line += fmt::format(", lives {}..{}", storage.begin, storage.end);
    if (storage.shared) line += ", shared";
    if (storage.offset >= 0) line += fmt::format(", at {}", storage.offset);
    if (storage.offset_slot >= 0) line += fmt::format(", at slot {}", storage.offset_slot);
    Line("{}", line);
  }

  static std::string Names(char kind, const std::vector<int>& ids) {
    std::vector<std::string> names;
    for (const int id : ids) names.push_back(fmt::format("{}{}", kind, id));
    return fmt::format("{}", fmt::join(names, ", "));
  }

  static std::string Text(const ByteCount& bytes) {
    return bytes.slot >= 0 ? fmt::format("slot {} bytes", bytes.slot)
                           : fmt::format("{} bytes", bytes.fixed);
  }

  void PrintSteps(const Steps& steps) {
    for (const Step& step : steps)
      std::visit([&](const auto& action) { Print(step, action); }, step.action);
  }

  void PrintInner(const char* what, const Steps& steps) {
    Line("{}", what);
    ++indent_;
    PrintSteps(steps);
    --indent_;
  }

  void Print(const Step& step, const BeginStep&) {
    const NodeEntry& node = program_.nodes[static_cast<size_t>(step.node)];
    Line("{} node {}: `{}` ({}) by {}", step.position, step.node, node.name, node.op, node.kernel);
  }
  void Print(const Step& step, const CallStep& call) {
    if (call.kernel.empty()) return Line("{} nothing follows", step.position);
    const auto first = call.buffers.begin() + call.first_output;
    std::string line =
        fmt::format("{} call {}({}){}", step.position, call.kernel.name,
                    Names('b', std::vector<int>(call.buffers.begin(), first)),
                    first == call.buffers.end()
                        ? ""
                        : " -> " + Names('b', std::vector<int>(first, call.buffers.end())));
    if (!call.packs.empty()) line += fmt::format(", packs {}", Names('w', call.packs));
    if (!call.kernel.tasks.is(1)) line += fmt::format(", {} tasks", DimText(call.kernel.tasks));
    if (call.parallel) line += call.one_range ? " by thread" : fmt::format(" by {}", call.grain);
    if (!call.kernel.scratch_bytes.is(0))
      line += fmt::format(", scratch {}", DimText(call.kernel.scratch_bytes));
    if (call.in_place >= 0) {
      line += fmt::format(", may write over b{}", call.buffers[static_cast<size_t>(call.in_place)]);
    }
    if (!call.kernel.fuses) line += ", unfused";
    Line("{}", line);
    if (call.kernel.code != nullptr) {
      ++indent_;
      Line("plan {}", call.kernel.code->Text(symbols_));
      --indent_;
    }
  }
  void Print(const Step& step, const AllocateStep& allocate) {
    Line("{} allocate s{}, {}", step.position, allocate.storage, Text(allocate.bytes));
  }
  void Print(const Step& step, const FreeStep& free) {
    Line("{} free s{}", step.position, free.storage);
  }
  void Print(const Step& step, const MoveStep& move) {
    Line("{} move s{} to s{}", step.position, move.from, move.to);
  }
  void Print(const Step& step, const CopyStep& copy) {
    Line("{} copy b{} to b{}, {}", step.position, copy.from, copy.to, Text(copy.bytes));
  }
  void Print(const Step& step, const AppendStep& append) {
    Line("{} append b{} to s{}, {}", step.position, append.from, append.storage,
         Text(append.bytes));
  }
  void Print(const Step& step, const TapStep& tap) {
    Line("{} tap {} is b{}", step.position, tap.tap, tap.buffer);
  }
  void Print(const Step& step, const IfStep& branches) {
    Line("{} if b{}", step.position, branches.condition);
    PrintInner("then", branches.then_steps);
    PrintInner("else", branches.else_steps);
  }
  void Print(const Step& step, const LoopStep& loop) {
    std::string line = fmt::format("{} loop", step.position);
    if (loop.fixed_trips) line += fmt::format(" {} times", DimText(loop.trips));
    if (loop.trip_count >= 0) line += fmt::format(" b{} times", loop.trip_count);
    if (loop.condition >= 0) line += fmt::format(" while b{}", loop.condition);
    if (loop.condition_out >= 0) line += fmt::format(", then b{}", loop.condition_out);
    line += fmt::format(", counted in slot {}", loop.iteration_slot);
    if (loop.iteration >= 0) line += fmt::format(" and b{}", loop.iteration);
    if (loop.condition_in >= 0) line += fmt::format(", told in b{}", loop.condition_in);
    Line("{}", line);
    PrintInner("do", loop.body);
  }
  void Print(const Step& step, const BandsStep& bands) {
    Line("{} bands", step.position);
    PrintInner("of", bands.body);
    std::vector<std::string> ranges;
    for (const BandsStep::Range& range : bands.order) {
      const int position = bands.body[static_cast<size_t>(range.call)].position;
      ranges.push_back(fmt::format("{} {}..{}", position, range.begin, range.end));
    }
    Line("on one thread tasks {}", fmt::join(ranges, ", "));
  }

  const Program& program_;
  const SymbolTable& symbols_;
  std::string text_;
  int indent_ = 0;
};

class Verifier {
 public:
  Verifier(const Program& program, size_t weights) : program_(program), weights_(weights) {}

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
  }
  void Check(const Step& step, const AllocateStep& allocate) {
    CheckStorage(step.position, allocate.storage);
  }
  void Check(const Step& step, const FreeStep& free) { CheckStorage(step.position, free.storage); }
  void Check(const Step& step, const MoveStep& move) {
    CheckStorage(step.position, move.from);
    CheckStorage(step.position, move.to);
  }
  void Check(const Step& step, const CopyStep& copy) {
    CheckBuffer(step.position, copy.from);
    CheckBuffer(step.position, copy.to);
  }
  void Check(const Step& step, const AppendStep& append) {
    CheckBuffer(step.position, append.from);
    CheckStorage(step.position, append.storage);
  }
  void Check(const Step& step, const TapStep& tap) { CheckBuffer(step.position, tap.buffer); }
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
    const std::vector<PlacedStorage>& places = program_.typical_places;
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

std::string ProgramText(const Program& program, const SymbolTable& symbols) {
  return Printer(program, symbols).Print();
}

absl::Status VerifyProgram(const Program& program, size_t weight_entries) {
  return Verifier(program, weight_entries).Run();
}

}  // namespace quench::codegen
