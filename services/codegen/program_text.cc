#include "services/codegen/program_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/codegen/laid_out_sizes.h"

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

  std::string BytesText(const Step& step) const {
    return step.bytes_slot >= 0 ? fmt::format("slot {} bytes", step.bytes_slot)
                                : fmt::format("{} bytes", step.bytes);
  }

  void PrintSteps(const std::vector<Step>& steps) {
    for (const Step& step : steps) PrintStep(step);
  }

  void PrintInner(const char* what, const std::vector<Step>& steps) {
    Line("{}", what);
    ++indent_;
    PrintSteps(steps);
    --indent_;
  }

  void PrintCall(const Step& step) {
    if (step.kernel.empty()) return Line("{} nothing follows", step.position);
    const auto first = step.buffers.begin() + step.first_output;
    std::string line =
        fmt::format("{} call {}({}){}", step.position, step.kernel.name,
                    Names('b', std::vector<int>(step.buffers.begin(), first)),
                    first == step.buffers.end()
                        ? ""
                        : " -> " + Names('b', std::vector<int>(first, step.buffers.end())));
    if (!step.packs.empty()) line += fmt::format(", packs {}", Names('w', step.packs));
    if (!step.kernel.tasks.is(1)) line += fmt::format(", {} tasks", DimText(step.kernel.tasks));
    if (step.parallel) line += fmt::format(" by {}", step.grain);
    if (!step.kernel.scratch_bytes.is(0))
      line += fmt::format(", scratch {}", DimText(step.kernel.scratch_bytes));
    if (step.in_place >= 0) {
      line += fmt::format(", may write over b{}", step.buffers[static_cast<size_t>(step.in_place)]);
    }
    if (!step.kernel.fuses) line += ", unfused";
    Line("{}", line);
  }

  void PrintStep(const Step& step) {
    const int at = step.position;
    switch (step.kind) {
      case Step::Kind::kNode: {
        const NodeEntry& node = program_.nodes[static_cast<size_t>(step.node)];
        return Line("{} node {}: `{}` ({}) by {}", at, step.node, node.name, node.op, node.kernel);
      }
      case Step::Kind::kCall:
        return PrintCall(step);
      case Step::Kind::kAllocate:
        return Line("{} allocate s{}, {}", at, step.storage, BytesText(step));
      case Step::Kind::kFree:
        return Line("{} free s{}", at, step.storage);
      case Step::Kind::kMove:
        return Line("{} move s{} to s{}", at, step.storage, step.target);
      case Step::Kind::kCopy:
        return Line("{} copy b{} to b{}, {}", at, step.from, step.to, BytesText(step));
      case Step::Kind::kAppend:
        return Line("{} append b{} to s{}, {}", at, step.from, step.storage, BytesText(step));
      case Step::Kind::kTap:
        return Line("{} tap {} is b{}", at, step.tap, step.from);
      case Step::Kind::kIf:
        Line("{} if b{}", at, step.from);
        PrintInner("then", step.then_steps);
        return PrintInner("else", step.else_steps);
      case Step::Kind::kLoop:
        Line("{} loop", at);
        return PrintInner("do", step.then_steps);
    }
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

  void CheckStorage(const Step& step, int id) {
    if (!IsStorage(id)) return Add("step {} names storage s{}", step.position, id);
    const Storage& storage = program_.storages[static_cast<size_t>(id)];
    if (storage.home != Home::kArena) return;
    if (step.position < storage.begin || step.position > storage.end) {
      Add("step {} uses storage s{}, which lives {}..{}", step.position, id, storage.begin,
          storage.end);
    }
  }
  void CheckBuffer(const Step& step, int id) {
    if (!IsBuffer(id)) return Add("step {} names buffer b{}", step.position, id);
    CheckStorage(step, program_.buffers[static_cast<size_t>(id)].storage);
  }

  static int FirstPosition(const Step& step) {
    int first = step.position;
    for (const auto* steps : {&step.then_steps, &step.else_steps}) {
      if (!steps->empty()) first = std::min(first, FirstPosition(steps->front()));
    }
    return first;
  }

  void CheckSteps(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      CheckStep(step);
      CheckSteps(step.then_steps);
      CheckSteps(step.else_steps);
    }
  }

  void CheckStep(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kNode:
        if (step.node < 0 || step.node >= static_cast<int>(program_.nodes.size()))
          Add("step {} begins node {}", step.position, step.node);
        return;
      case Step::Kind::kCall:
        for (const int id : step.buffers) CheckBuffer(step, id);
        for (const int id : step.packs) {
          if (!IsWeight(id)) Add("step {} names weight entry w{}", step.position, id);
        }
        if (step.kernel.empty() && !step.buffers.empty())
          Add("step {} calls a kernel without a plan", step.position);
        if (step.parallel && step.kernel.tasks.is(1))
          Add("step {} runs one task on many threads", step.position);
        return;
      case Step::Kind::kAllocate:
      case Step::Kind::kFree:
        return CheckStorage(step, step.storage);
      case Step::Kind::kMove:
        CheckStorage(step, step.storage);
        return CheckStorage(step, step.target);
      case Step::Kind::kCopy:
        CheckBuffer(step, step.from);
        return CheckBuffer(step, step.to);
      case Step::Kind::kAppend:
        CheckBuffer(step, step.from);
        return CheckStorage(step, step.storage);
      case Step::Kind::kTap:
        return CheckBuffer(step, step.from);
      case Step::Kind::kIf: {
        Step begin;  // the condition is read before the branches, whose positions come first
        begin.position = FirstPosition(step);
        return CheckBuffer(begin, step.from);
      }
      case Step::Kind::kLoop:
        return;
    }
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
