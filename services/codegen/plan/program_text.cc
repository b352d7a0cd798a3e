#include "services/codegen/plan/program_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/ir/quoting.h"
#include "common/ir/text_parts.h"
#include "services/codegen/plan/program_words.h"

namespace quench::codegen {
namespace {

// `name`, in quotation marks where it has characters that would end it.
std::string NameText(const std::string& name) {
  const std::string quoted = Quote(name);
  const bool plain = quoted.size() == name.size() + 2 && name.find('`') == std::string::npos;
  return plain ? "`" + name + "`" : quoted;
}

std::string WordText(const std::string& word) { return IsIdentifier(word) ? word : Quote(word); }

// Numbers in order, those that grow evenly as ranges: "3, 5..111 by 2, 112 x 4".
std::string RunsText(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0, end = 0; i < numbers.size(); i = end) {
    const int64_t first = numbers[i], by = i + 1 < numbers.size() ? numbers[i + 1] - first : 0;
    for (end = i + 1; end < numbers.size() && numbers[end] - numbers[end - 1] == by;) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(first);
    if (end - i < 3 || by < 0) {
      end = i + 1;
    } else if (by == 0) {
      text += fmt::format(" x {}", end - i);
    } else {
      text += fmt::format("..{}", numbers[end - 1]);
      if (by != 1) text += fmt::format(" by {}", by);
    }
  }
  return text;
}

class ProgramPrinter {
 public:
  ProgramPrinter(const Program& program, const SymbolTable& symbols)
      : program_(program),
        symbols_(symbols),
        usual_shapes_(UsualShapes(program)),
        places_(program.storages.size()) {
    for (const auto* places : {&program.typical_places, &program.typical_device_places}) {
      for (const PlacedStorage& place : *places)
        places_[static_cast<size_t>(place.storage)] = place;
    }
  }

  std::string Print() {
    Line("program of {} positions{}", program_.num_positions,
         program_.num_pointers == 0 ? "" : fmt::format(" and {} pointers", program_.num_pointers));
    for (SymbolId id = 0; id < symbols_.size(); ++id) Line("{}", SymbolText(symbols_, id));
    for (size_t i = 0; i < program_.storages.size(); ++i) PrintStorage(i);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      Line("b{} s{}{} {}: {}", i, buffer.storage,
           buffer.offset == 0 ? "" : fmt::format("+{}", buffer.offset), NameText(buffer.name),
           ShapeText(buffer.shape));
    }
    for (size_t i = 0; i < program_.taps.size(); ++i)
      Line("tap {} {}: b{}", i, NameText(program_.tap_names[i]), program_.taps[i]);
    PrintSides("inputs", program_.input_sides);
    PrintSides("outputs", program_.output_sides);
    PrintSteps(program_.steps);
    for (const ShownValue& value : program_.shown) {
      Line("value {} in b{} from {} on{}", NameText(value.name), value.buffer, value.position,
           value.node < 0 ? "" : fmt::format(", by node {}", value.node));
    }
    if (!program_.plan.empty()) {
      Line("plan: {} slots, arena in {}, lower bound in {}, scratch in {}", program_.num_slots,
           program_.arena_slot, program_.lower_bound_slot, program_.scratch_slot);
      Line("arena {} bytes at typical sizes, at least {}", program_.typical_arena_bytes,
           program_.typical_lower_bound);
    }
    if (!program_.plan.empty() && program_.has_device()) {
      Line("device plan: arena in {}, lower bound in {}, scratch in {}", program_.device_arena_slot,
           program_.device_lower_bound_slot, program_.device_scratch_slot);
      Line("device arena {} bytes at typical sizes, at least {}", program_.typical_device_bytes,
           program_.typical_device_lower_bound);
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
    std::string line = fmt::format("s{} {}{}", i, storage.device ? kDeviceWord : "",
                                   kHomeNames[static_cast<size_t>(storage.home)]);
    if (storage.home != Home::kArena) line += fmt::format(" {}", storage.index);
    line += IsGivenUp(storage) ? " given up"
                               : fmt::format(", lives {}..{}", storage.begin, storage.end);
    if (storage.shared) line += ", shared";
    if (storage.moved) line += ", moved";
    if (storage.output >= 0) line += fmt::format(", becomes output {}", storage.output);
    if (storage.offset >= 0) line += fmt::format(", at {}", storage.offset);
    if (storage.offset_slot >= 0) line += fmt::format(", at slot {}", storage.offset_slot);
    if (const PlacedStorage& place = places_[i];
        place != UsualPlace(storage, static_cast<int>(i))) {
      line += fmt::format(", typically {} bytes at {}", place.bytes, place.offset);
    }
    if (usual_shapes_[i] == nullptr || *usual_shapes_[i] != storage.shape)
      line += ", for " + ShapeText(storage.shape);
    Line("{}", line);
  }

  void PrintSides(const char* what, const std::vector<uint32_t>& sides) {
    if (sides.empty()) return;
    std::vector<std::string> words;
    for (const uint32_t side : sides) words.emplace_back(kSideNames[side]);
    Line("{} on {}", what, fmt::join(words, ", "));
  }

  static std::string Names(char kind, const std::vector<int>& ids, const char* separator = ", ") {
    std::vector<std::string> names;
    for (const int id : ids) names.push_back(fmt::format("{}{}", kind, id));
    return fmt::format("{}", fmt::join(names, separator));
  }

  static std::string Text(const ByteCount& bytes) {
    return bytes.slot >= 0 ? fmt::format("slot {} bytes", bytes.slot)
                           : fmt::format("{} bytes", bytes.fixed);
  }

  // Steps belong to the node that began last in their sequence, those that free memory to none.
  void PrintSteps(const Steps& steps) {
    const int outer = node_;
    for (const Step& step : steps)
      std::visit([&](const auto& action) { Print(step, action); }, step.action);
    node_ = outer;
  }

  void PrintStep(const Step& step, const std::string& action, int usual_node) {
    std::string node;
    if (step.node != usual_node)
      node = step.node < 0 ? ", of no node" : fmt::format(", of node {}", step.node);
    Line("{} {}{}", step.position, action, node);
  }
  template <typename... Args>
  void StepLine(const Step& step, fmt::format_string<Args...> format, Args&&... args) {
    PrintStep(step, fmt::format(format, std::forward<Args>(args)...), node_);
  }

  void PrintInner(const char* what, const Steps& steps) {
    Line("{}", what);
    ++indent_;
    PrintSteps(steps);
    --indent_;
  }

  void Print(const Step& step, const BeginStep&) {
    const NodeEntry& node = program_.nodes[static_cast<size_t>(step.node)];
    node_ = step.node;
    StepLine(step, "node {}: {} ({}) by {}", step.node, NameText(node.name), WordText(node.op),
             WordText(node.kernel));
  }
  void Print(const Step& step, const CallStep& call) {
    const KernelPlan& kernel = call.kernel;
    if (kernel.empty() && call.buffers.empty()) return StepLine(step, "nothing follows");
    const auto first = call.buffers.begin() + call.first_output;
    std::string line =
        fmt::format("{} {}({}){}", call.on_device ? "launch" : "call", WordText(kernel.name),
                    Names('b', std::vector<int>(call.buffers.begin(), first)),
                    first == call.buffers.end()
                        ? ""
                        : " -> " + Names('b', std::vector<int>(first, call.buffers.end())));
    if (!call.packs.empty()) line += ", packs " + Names('w', call.packs, " ");
    if (!kernel.tasks.is(1) || call.parallel)
      line += fmt::format(", {} tasks", DimText(kernel.tasks));
    if (call.parallel) line += call.one_range ? " by thread" : fmt::format(" by {}", call.grain);
    if (!kernel.scratch_bytes.is(0))
      line += fmt::format(", {} bytes of scratch", DimText(kernel.scratch_bytes));
    if (call.scratch_storage >= 0) line += fmt::format(", scratch in s{}", call.scratch_storage);
    if (call.in_place >= 0) {
      line += fmt::format(", may write over b{}", call.buffers[static_cast<size_t>(call.in_place)]);
    }
    if (call.updates) line += ", updates";
    if (!kernel.fuses) line += ", unfused";
    StepLine(step, "{}", line);
    ++indent_;
    PrintKernel(kernel);
    if (call.rows) PrintRows(*call.rows, call.cost);
    --indent_;
  }
  void PrintKernel(const KernelPlan& kernel) {
    if (kernel.empty()) return;
    // Loops that were read from a text are code without a plan.
    const std::string plan = kernel.code == nullptr ? "" : kernel.code->Text(symbols_);
    Line("{}", plan.empty() ? "loops" : "plan " + plan);
  }
  void PrintRows(const RowOrder& rows, double cost) {
    Line("rows of input {}: needs {}; makes {}{}", rows.input, RunsText(rows.needs),
         RunsText(rows.makes), cost == 0 ? "" : fmt::format("; {} us", cost));
  }
  void Print(const Step& step, const AllocateStep& allocate) {
    StepLine(step, "allocate s{}, {}", allocate.storage, Text(allocate.bytes));
  }
  void Print(const Step& step, const FreeStep& free) {
    PrintStep(step, fmt::format("free s{}", free.storage), -1);
  }
  void Print(const Step& step, const MoveStep& move) {
    StepLine(step, "move s{} to s{}", move.from, move.to);
  }
  void Print(const Step& step, const TransferStep& transfer) {
    StepLine(step, "transfer b{} to b{}", transfer.from, transfer.to);
  }
  void Print(const Step& step, const CopyStep& copy) {
    StepLine(step, "copy b{} to b{}, {}", copy.from, copy.to, Text(copy.bytes));
  }
  void Print(const Step& step, const AppendStep& append) {
    StepLine(step, "append b{} to s{}, {}, counted in slot {}, room in slot {}", append.from,
             append.storage, Text(append.bytes), append.length_slot, append.capacity_slot);
  }
  void Print(const Step& step, const TapStep& tap) {
    StepLine(step, "tap {} is b{}", tap.tap, tap.buffer);
  }
  void Print(const Step& step, const IfStep& branches) {
    StepLine(step, "if b{}", branches.condition);
    PrintInner("then", branches.then_steps);
    PrintInner("else", branches.else_steps);
  }
  void Print(const Step& step, const LoopStep& loop) {
    std::string line = "loop";
    if (loop.fixed_trips) line += fmt::format(" {} times", DimText(loop.trips));
    if (loop.trip_count >= 0) line += fmt::format(", b{} times", loop.trip_count);
    if (loop.condition >= 0) line += fmt::format(", while b{}", loop.condition);
    if (loop.condition_out >= 0) line += fmt::format(", then b{}", loop.condition_out);
    if (loop.iteration_slot >= 0) line += fmt::format(", counted in slot {}", loop.iteration_slot);
    if (loop.iteration >= 0) line += fmt::format(", counted in b{}", loop.iteration);
    if (loop.condition_in >= 0) line += fmt::format(", told in b{}", loop.condition_in);
    StepLine(step, "{}", line);
    PrintInner("do", loop.body);
  }
  void Print(const Step& step, const BandsStep& bands) {
    PrintStep(step, "bands", NodeOf(bands, node_));
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
  const std::vector<const Shape*> usual_shapes_;
  std::vector<PlacedStorage> places_;  // by storage
  std::string text_;
  int indent_ = 0;
  int node_ = -1;
};

}  // namespace

std::string ProgramText(const Program& program, const SymbolTable& symbols) {
  return ProgramPrinter(program, symbols).Print();
}

}  // namespace quench::codegen
