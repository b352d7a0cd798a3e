#include "services/codegen/plan/program_parse.h"

#include <algorithm>
#include <iterator>

#include "common/base/status.h"
#include "common/ir/text.h"
#include "common/ir/text_parts.h"
#include "services/codegen/plan/line_reader.h"
#include "services/codegen/plan/program_words.h"

namespace quench::codegen {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 46;  // as laid_out_sizes.h has it
constexpr int64_t kMostPositions = 1 << 20;
constexpr size_t kMostRows = size_t{1} << 22;  // of all calls: a range of a few characters is many
constexpr int kMostNesting = 64;

// A kernel that was read from a text; `plan` is empty for loops.
class ReadKernel final : public VectorCode {
 public:
  explicit ReadKernel(std::string plan) : plan_(std::move(plan)) {}
  absl::Status Emit(VectorBuilder&) const override {
    return absl::FailedPreconditionError(
        "the kernel was read from a text: it has a plan but no code");
  }
  std::string Text(const SymbolTable&) const override { return plan_; }
  // Only candidates get the dims of another table, and those are never read.
  std::shared_ptr<const VectorCode> WithDims(const DimMap&) const override {
    QUENCH_CHECK(false);
    return nullptr;
  }

 private:
  const std::string plan_;
};

// The kernel whose plans a call has: a preparation has one of its kernel's.
const Kernel* FamilyOf(const std::string& call) {
  constexpr std::string_view kPrepare = "_prepare";
  const std::string name = call.ends_with(kPrepare) ? call.substr(0, call.size() - kPrepare.size()) : call;
  for (const Kernel* kernel : AllKernels()) {
    if (kernel->name == name && kernel->reread != nullptr) return kernel;
  }
  return nullptr;
}

class ProgramParser {
 public:
  ProgramParser(const std::string& text, SymbolTable& symbols)
      : text_(text), lines_(text), symbols_(symbols) {}

  absl::StatusOr<Program> Parse() {
    QUENCH_RETURN_IF_ERROR(ParseHead());
    while (Starts('s')) QUENCH_RETURN_IF_ERROR(ParseStorage());
    while (Starts('b')) QUENCH_RETURN_IF_ERROR(ParseBuffer());
    while (lines_.Take("tap ")) QUENCH_RETURN_IF_ERROR(ParseTap());
    QUENCH_RETURN_IF_ERROR(ParseSteps(0, program_.steps));
    while (lines_.Take("value ")) QUENCH_RETURN_IF_ERROR(ParseValue());
    if (lines_.Take("plan: ")) QUENCH_RETURN_IF_ERROR(ParsePlan());
    if (!lines_.AtEnd()) {
      return lines_.Expected(
          "the end, or a line in this order: symbols, storages, buffers, taps, steps, values, plan");
    }
    QUENCH_RETURN_IF_ERROR(CheckUses());
    QUENCH_RETURN_IF_ERROR(FillStorages());
    return std::move(program_);
  }

 private:
  // A number that a line names and that later lines have to declare.
  struct Use {
    size_t offset;
    int id;
  };

  bool Starts(char kind) const {
    const std::string_view rest = lines_.Rest();
    return rest.size() > 1 && rest[0] == kind && rest[1] >= '0' && rest[1] <= '9';
  }

  absl::Status ParseHead();
  absl::Status ParseStorage();
  absl::Status ParseStorageClause(Storage& storage);
  absl::Status ParseBuffer();
  absl::Status ParseTap();
  absl::Status ParseValue();
  absl::Status ParsePlan();
  absl::Status CheckUses() const;
  absl::Status FillStorages();

  absl::StatusOr<int> Position() {
    QUENCH_ASSIGN_OR_RETURN(const int64_t position, lines_.Number(program_.num_positions));
    return static_cast<int>(position);
  }
  absl::StatusOr<int> BufferId() { return lines_.Id('b', program_.buffers.size()); }
  absl::StatusOr<int> StorageId() { return lines_.Id('s', program_.storages.size()); }
  absl::StatusOr<int> Late(std::vector<Use>& uses) {
    const size_t at = lines_.offset();
    QUENCH_ASSIGN_OR_RETURN(const int64_t id, lines_.Number(INT32_MAX));
    uses.push_back({at, static_cast<int>(id)});
    return static_cast<int>(id);
  }
  absl::StatusOr<int> Slot() { return Late(slots_); }
  absl::StatusOr<Dim> Size() {
    const size_t at = lines_.offset();
    QUENCH_ASSIGN_OR_RETURN(const Dim dim, lines_.Size(symbols_));
    if (!dim.is_static() || (dim.value() >= 0 && dim.value() <= kMostBytes)) return dim;
    return lines_.ErrorAt(at, fmt::format("{} is not a size: those are from 0 to {}", dim.value(),
                                          kMostBytes));
  }
  absl::StatusOr<Shape> ParseShape();
  absl::StatusOr<ByteCount> Bytes();

  absl::Status ParseSteps(int depth, Steps& steps);
  absl::Status ParseStep(int depth, Step& step);
  absl::Status ParseBlock(const char* name, int depth, Steps& steps);
  bool IsAtNode() const {
    return lines_.Rest().starts_with(", of node ") || lines_.Rest().starts_with(", of no node");
  }
  // The end of a step's first line; the step belongs to `usual` if the line says nothing.
  absl::Status EndStep(Step& step, int usual);
  absl::Status EndStep(Step& step) { return EndStep(step, node_); }

  // After the word that says what the step does.
  absl::Status ParseBegin(int depth, Step& step);
  absl::Status ParseNothing(int depth, Step& step);
  absl::Status ParseCall(int depth, Step& step);
  absl::Status ParseAllocate(int depth, Step& step);
  absl::Status ParseFree(int depth, Step& step);
  absl::Status ParseMove(int depth, Step& step);
  absl::Status ParseCopy(int depth, Step& step);
  absl::Status ParseAppend(int depth, Step& step);
  absl::Status ParseTapStep(int depth, Step& step);
  absl::Status ParseIf(int depth, Step& step);
  absl::Status ParseLoop(int depth, Step& step);
  absl::Status ParseBands(int depth, Step& step);

  absl::Status ParseArguments(CallStep& call);
  absl::Status ParseCallClause(CallStep& call);
  absl::Status ParseTasks(CallStep& call);
  absl::Status ParseKernel(CallStep& call);
  absl::Status ParseRows(CallStep& call);
  absl::StatusOr<std::vector<int64_t>> ParseRuns();
  absl::Status ParseRun(std::vector<int64_t>& numbers);
  absl::Status ParseLoopClause(LoopStep& loop);
  absl::Status ParseRange(BandsStep& bands);

  const std::string& text_;
  LineReader lines_;
  SymbolTable& symbols_;
  Program program_;
  int node_ = -1;  // that began last
  size_t rows_ = 0;
  std::vector<Use> nodes_, slots_;
  std::vector<size_t> storage_lines_;
  std::vector<bool> has_shape_;                      // by storage
  std::vector<std::optional<PlacedStorage>> places_;  // by storage
};

// ---- declarations ----

absl::Status ProgramParser::ParseHead() {
  QUENCH_RETURN_IF_ERROR(lines_.Expect("program of "));
  QUENCH_ASSIGN_OR_RETURN(const int64_t positions, lines_.Number(kMostPositions));
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" positions"));
  program_.num_positions = static_cast<int>(positions);
  if (lines_.Take(" and ")) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t pointers, lines_.Number(kMostPositions));
    QUENCH_RETURN_IF_ERROR(lines_.Expect(" pointers"));
    program_.num_pointers = static_cast<int>(pointers);
  }
  QUENCH_RETURN_IF_ERROR(lines_.EndLine());
  if (!lines_.Rest().starts_with("symbol ") && !lines_.Rest().starts_with("let "))
    return absl::OkStatus();
  const std::shared_ptr<SymbolTable> unowned(std::shared_ptr<void>(), &symbols_);
  QUENCH_ASSIGN_OR_RETURN(const size_t end, ParseSymbolsAt(text_, lines_.offset(), unowned));
  return lines_.GoTo(end);
}

absl::Status ProgramParser::ParseStorage() {
  storage_lines_.push_back(lines_.offset());
  has_shape_.push_back(false);
  places_.emplace_back();
  Storage storage;
  QUENCH_RETURN_IF_ERROR(lines_.Expect(fmt::format("s{} ", program_.storages.size())));
  const auto home = std::find_if(std::begin(kHomeNames), std::end(kHomeNames),
                                 [this](const char* name) { return lines_.Take(name); });
  if (home == std::end(kHomeNames))
    return lines_.Expected("arena, input, output, weights or heap");
  storage.home = static_cast<Home>(home - std::begin(kHomeNames));
  if (storage.home != Home::kArena) {
    QUENCH_RETURN_IF_ERROR(lines_.Expect(" "));
    const bool pointer = storage.home == Home::kHeap;
    if (pointer && program_.num_pointers == 0)
      return lines_.Error("there is a heap storage, but the program is of no pointers");
    QUENCH_ASSIGN_OR_RETURN(const int64_t index,
                            lines_.Number(pointer ? program_.num_pointers - 1 : kMostPositions));
    storage.index = static_cast<int>(index);
  }
  if (lines_.Take(" given up")) {
    storage.begin = 1;
  } else {
    QUENCH_RETURN_IF_ERROR(lines_.Expect(", lives "));
    QUENCH_ASSIGN_OR_RETURN(storage.begin, Position());
    QUENCH_RETURN_IF_ERROR(lines_.Expect(".."));
    QUENCH_ASSIGN_OR_RETURN(storage.end, Position());
    if (storage.end < storage.begin)
      return lines_.Error(fmt::format("s{} ends before it begins: one that nothing lies in is "
                                      "`given up`", program_.storages.size()));
  }
  while (lines_.Take(", ")) QUENCH_RETURN_IF_ERROR(ParseStorageClause(storage));
  program_.storages.push_back(std::move(storage));
  return lines_.EndLine();
}

absl::Status ProgramParser::ParseStorageClause(Storage& storage) {
  if (lines_.TakeClause("shared")) {
    storage.shared = true;
  } else if (lines_.TakeClause("moved")) {
    storage.moved = true;
  } else if (lines_.Take("becomes output ")) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t output, lines_.Number(kMostPositions));
    storage.output = static_cast<int>(output);
  } else if (lines_.Take("at slot ")) {
    QUENCH_ASSIGN_OR_RETURN(storage.offset_slot, Slot());
  } else if (lines_.Take("at ")) {
    QUENCH_ASSIGN_OR_RETURN(storage.offset, lines_.Number(kMostBytes));
  } else if (lines_.Take("typically ")) {
    PlacedStorage& place = places_.back().emplace();
    QUENCH_ASSIGN_OR_RETURN(place.bytes, lines_.Number(kMostBytes));
    QUENCH_RETURN_IF_ERROR(lines_.Expect(" bytes at "));
    QUENCH_ASSIGN_OR_RETURN(place.offset, lines_.Number(kMostBytes));
  } else if (lines_.Take("for ")) {
    has_shape_.back() = true;
    QUENCH_ASSIGN_OR_RETURN(storage.shape, ParseShape());
  } else {
    return lines_.Expected(
        "`shared`, `moved`, `becomes output 0`, `at 64`, `at slot 0`, `typically 64 bytes at 64` or "
        "`for` and a shape");
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> ProgramParser::ParseShape() {
  Shape shape;
  const size_t at = lines_.offset();
  QUENCH_ASSIGN_OR_RETURN(const std::string name, lines_.Word());
  const std::optional<DataType> dtype = ParseDataType(name);
  if (!dtype) return lines_.ErrorAt(at, fmt::format("unknown dtype `{}`", name));
  shape.dtype = *dtype;
  QUENCH_RETURN_IF_ERROR(lines_.Expect("["));
  while (!lines_.Take("]")) {
    if (!shape.dims.empty()) QUENCH_RETURN_IF_ERROR(lines_.Expect(", "));
    QUENCH_ASSIGN_OR_RETURN(const Dim dim, Size());
    shape.dims.push_back(dim);
  }
  if (!lines_.Take(" ")) return shape;
  const size_t layout_at = lines_.offset();
  const std::string text(lines_.Rest().substr(0, lines_.Rest().find(',')));
  const std::optional<Layout> layout = Layout::Parse(text);
  const size_t rank = shape.dims.size();
  if (!layout || layout->blocked_axis >= static_cast<int>(rank) ||
      (!layout->order.empty() && layout->order.size() != rank)) {
    return lines_.ErrorAt(layout_at, fmt::format("`{}` is not a layout of {} axes: those are like "
                                                 "`NHWC` or `NCHW8c`", text, rank));
  }
  lines_.Take(text);
  shape.layout = *layout;
  return shape;
}

absl::Status ProgramParser::ParseBuffer() {
  Buffer buffer;
  QUENCH_RETURN_IF_ERROR(lines_.Expect(fmt::format("b{} ", program_.buffers.size())));
  QUENCH_ASSIGN_OR_RETURN(buffer.storage, StorageId());
  if (lines_.Take("+")) {
    QUENCH_ASSIGN_OR_RETURN(buffer.offset, lines_.Number(kMostBytes));
  }
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" "));
  QUENCH_ASSIGN_OR_RETURN(buffer.name, lines_.Name());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(": "));
  QUENCH_ASSIGN_OR_RETURN(buffer.shape, ParseShape());
  program_.buffers.push_back(std::move(buffer));
  return lines_.EndLine();
}

absl::Status ProgramParser::ParseTap() {
  QUENCH_RETURN_IF_ERROR(lines_.Expect(fmt::format("{} ", program_.taps.size())));
  QUENCH_ASSIGN_OR_RETURN(std::string name, lines_.Name());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(": "));
  QUENCH_ASSIGN_OR_RETURN(const int buffer, BufferId());
  program_.taps.push_back(buffer);
  program_.tap_names.push_back(std::move(name));
  return lines_.EndLine();
}

absl::Status ProgramParser::ParseValue() {
  ShownValue value;
  QUENCH_ASSIGN_OR_RETURN(value.name, lines_.Name());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" in "));
  QUENCH_ASSIGN_OR_RETURN(value.buffer, BufferId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" from "));
  QUENCH_ASSIGN_OR_RETURN(value.position, Position());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" on"));
  if (lines_.Take(", by node ")) {
    QUENCH_ASSIGN_OR_RETURN(value.node, Late(nodes_));
  }
  program_.shown.push_back(std::move(value));
  return lines_.EndLine();
}

absl::Status ProgramParser::ParsePlan() {
  const size_t at = lines_.offset();
  QUENCH_ASSIGN_OR_RETURN(const int64_t slots, lines_.Number(INT32_MAX));
  program_.num_slots = static_cast<int32_t>(slots);
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" slots, arena in "));
  QUENCH_ASSIGN_OR_RETURN(program_.arena_slot, Slot());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", lower bound in "));
  QUENCH_ASSIGN_OR_RETURN(program_.lower_bound_slot, Slot());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", scratch in "));
  QUENCH_ASSIGN_OR_RETURN(program_.scratch_slot, Slot());
  QUENCH_RETURN_IF_ERROR(lines_.EndLine());
  QUENCH_RETURN_IF_ERROR(lines_.Expect("arena "));
  QUENCH_ASSIGN_OR_RETURN(program_.typical_arena_bytes, lines_.Number(kMostBytes));
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" bytes at typical sizes, at least "));
  QUENCH_ASSIGN_OR_RETURN(program_.typical_lower_bound, lines_.Number(kMostBytes));
  for (const int32_t slot :
       {program_.arena_slot, program_.lower_bound_slot, program_.scratch_slot}) {
    if (slot >= symbols_.size()) continue;
    return lines_.ErrorAt(at, fmt::format("slot {} is a symbol's: the {} symbols of the text have the "
                                          "first slots", slot, symbols_.size()));
  }
  program_.plan.name = "plan";
  program_.plan.code = std::make_shared<const ReadKernel>("");
  return lines_.EndLine();
}

absl::Status ProgramParser::CheckUses() const {
  const int nodes = static_cast<int>(program_.nodes.size());
  for (const Use& use : nodes_) {
    if (use.id >= nodes)
      return lines_.ErrorAt(use.offset, fmt::format("no step begins node {}", use.id));
  }
  const int slots = program_.plan.empty() ? symbols_.size() : program_.num_slots;
  for (const Use& use : slots_) {
    if (use.id >= slots)
      return lines_.ErrorAt(use.offset,
                            fmt::format("there is no slot {}: there are {}", use.id, slots));
  }
  return absl::OkStatus();
}

absl::Status ProgramParser::FillStorages() {
  const std::vector<const Shape*> usual = UsualShapes(program_);
  for (size_t i = 0; i < usual.size(); ++i) {
    Storage& storage = program_.storages[i];
    if (!has_shape_[i] && usual[i] == nullptr) {
      return lines_.ErrorAt(
          storage_lines_[i],
          fmt::format("no buffer lies in s{}: its line ends with `, for f32[2, 3]`, its shape", i));
    }
    if (!has_shape_[i]) storage.shape = *usual[i];
    PlacedStorage place = places_[i] ? *places_[i] : UsualPlace(storage, static_cast<int>(i));
    if (places_[i]) place.storage = static_cast<int>(i);
    if (place.storage >= 0) program_.typical_places.push_back(place);
  }
  std::stable_sort(
      program_.typical_places.begin(), program_.typical_places.end(),
      [](const PlacedStorage& a, const PlacedStorage& b) { return a.offset < b.offset; });
  return absl::OkStatus();
}

// ---- steps ----

absl::Status ProgramParser::ParseSteps(int depth, Steps& steps) {
  if (depth > kMostNesting)
    return lines_.Error(fmt::format("steps are nested deeper than {}", kMostNesting));
  const int outer = node_;
  while (!lines_.AtEnd()) {
    const std::string_view rest = lines_.Rest();
    const bool step = rest[0] >= '0' && rest[0] <= '9';
    if (lines_.depth() > depth || (step && lines_.depth() < 0))
      return lines_.Error(fmt::format("the line is not indented by {} spaces", 2 * depth));
    if (!step || lines_.depth() < depth) break;
    steps.emplace_back();
    QUENCH_RETURN_IF_ERROR(ParseStep(depth, steps.back()));
  }
  node_ = outer;
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseBlock(const char* name, int depth, Steps& steps) {
  if (lines_.depth() != depth || !lines_.TakeClause(name))
    return lines_.Expected(fmt::format("`{}`, indented by {} spaces,", name, 2 * depth));
  QUENCH_RETURN_IF_ERROR(lines_.EndLine());
  return ParseSteps(depth + 1, steps);
}

absl::Status ProgramParser::ParseStep(int depth, Step& step) {
  static constexpr struct {
    const char* word;
    absl::Status (ProgramParser::*parse)(int depth, Step& step);
  } kActions[] = {{"node ", &ProgramParser::ParseBegin},
                  {"nothing follows", &ProgramParser::ParseNothing},
                  {"call ", &ProgramParser::ParseCall},
                  {"allocate ", &ProgramParser::ParseAllocate},
                  {"free ", &ProgramParser::ParseFree},
                  {"move ", &ProgramParser::ParseMove},
                  {"copy ", &ProgramParser::ParseCopy},
                  {"append ", &ProgramParser::ParseAppend},
                  {"tap ", &ProgramParser::ParseTapStep},
                  {"if ", &ProgramParser::ParseIf},
                  {"loop", &ProgramParser::ParseLoop},
                  {"bands", &ProgramParser::ParseBands}};
  QUENCH_ASSIGN_OR_RETURN(step.position, Position());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" "));
  for (const auto& [word, parse] : kActions) {
    if (lines_.Take(word)) return (this->*parse)(depth, step);
  }
  return lines_.Expected(
      "node, nothing follows, call, allocate, free, move, copy, append, tap, if, loop or bands");
}

absl::Status ProgramParser::EndStep(Step& step, int usual) {
  step.node = usual;
  if (lines_.Take(", of no node")) {
    step.node = -1;
  } else if (lines_.Take(", of node ")) {
    QUENCH_ASSIGN_OR_RETURN(step.node, Late(nodes_));
  }
  return lines_.EndLine();
}

absl::Status ProgramParser::ParseBegin(int, Step& step) {
  NodeEntry node;
  QUENCH_RETURN_IF_ERROR(lines_.Expect(fmt::format("{}: ", program_.nodes.size())));
  QUENCH_ASSIGN_OR_RETURN(node.name, lines_.Name());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" ("));
  QUENCH_ASSIGN_OR_RETURN(node.op, lines_.Word());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(") by "));
  QUENCH_ASSIGN_OR_RETURN(node.kernel, lines_.Word());
  step.action = BeginStep{};
  step.node = node_ = static_cast<int>(program_.nodes.size());
  program_.nodes.push_back(std::move(node));
  return lines_.EndLine();
}

absl::Status ProgramParser::ParseAllocate(int, Step& step) {
  AllocateStep allocate;
  QUENCH_ASSIGN_OR_RETURN(allocate.storage, StorageId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", "));
  QUENCH_ASSIGN_OR_RETURN(allocate.bytes, Bytes());
  step.action = allocate;
  return EndStep(step);
}

absl::Status ProgramParser::ParseFree(int, Step& step) {
  FreeStep free;
  QUENCH_ASSIGN_OR_RETURN(free.storage, StorageId());
  step.action = free;
  return EndStep(step, -1);
}

absl::Status ProgramParser::ParseMove(int, Step& step) {
  MoveStep move;
  QUENCH_ASSIGN_OR_RETURN(move.from, StorageId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" to "));
  QUENCH_ASSIGN_OR_RETURN(move.to, StorageId());
  step.action = move;
  return EndStep(step);
}

absl::Status ProgramParser::ParseCopy(int, Step& step) {
  CopyStep copy;
  QUENCH_ASSIGN_OR_RETURN(copy.from, BufferId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" to "));
  QUENCH_ASSIGN_OR_RETURN(copy.to, BufferId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", "));
  QUENCH_ASSIGN_OR_RETURN(copy.bytes, Bytes());
  step.action = copy;
  return EndStep(step);
}

absl::Status ProgramParser::ParseAppend(int, Step& step) {
  AppendStep append;
  QUENCH_ASSIGN_OR_RETURN(append.from, BufferId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" to "));
  QUENCH_ASSIGN_OR_RETURN(append.storage, StorageId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", "));
  QUENCH_ASSIGN_OR_RETURN(append.bytes, Bytes());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", counted in slot "));
  QUENCH_ASSIGN_OR_RETURN(append.length_slot, Slot());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", room in slot "));
  QUENCH_ASSIGN_OR_RETURN(append.capacity_slot, Slot());
  step.action = append;
  return EndStep(step);
}

absl::Status ProgramParser::ParseTapStep(int, Step& step) {
  TapStep tap;
  const size_t at = lines_.offset();
  QUENCH_ASSIGN_OR_RETURN(const int64_t number, lines_.Number(INT32_MAX));
  if (number >= static_cast<int64_t>(program_.taps.size()))
    return lines_.ErrorAt(at, fmt::format("there is no tap {}: {} are declared", number,
                                          program_.taps.size()));
  tap.tap = static_cast<int>(number);
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" is "));
  QUENCH_ASSIGN_OR_RETURN(tap.buffer, BufferId());
  step.action = tap;
  return EndStep(step);
}

absl::StatusOr<ByteCount> ProgramParser::Bytes() {
  ByteCount bytes;
  if (lines_.Take("slot ")) {
    QUENCH_ASSIGN_OR_RETURN(bytes.slot, Slot());
  } else {
    QUENCH_ASSIGN_OR_RETURN(bytes.fixed, lines_.Number(kMostBytes));
  }
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" bytes"));
  return bytes;
}

// ---- calls ----

absl::Status ProgramParser::ParseNothing(int, Step& step) {
  step.action = CallStep{};
  return EndStep(step);
}

absl::Status ProgramParser::ParseCall(int depth, Step& step) {
  CallStep call;
  QUENCH_ASSIGN_OR_RETURN(call.kernel.name, lines_.Word());
  QUENCH_RETURN_IF_ERROR(ParseArguments(call));
  while (!IsAtNode() && lines_.Take(", ")) QUENCH_RETURN_IF_ERROR(ParseCallClause(call));
  QUENCH_RETURN_IF_ERROR(EndStep(step));
  if (lines_.depth() == depth + 1 && !lines_.Rest().starts_with("rows "))
    QUENCH_RETURN_IF_ERROR(ParseKernel(call));
  if (lines_.depth() == depth + 1 && lines_.Take("rows of input "))
    QUENCH_RETURN_IF_ERROR(ParseRows(call));
  step.action = std::move(call);
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseArguments(CallStep& call) {
  const auto parse = [&]() -> absl::Status {
    do {
      QUENCH_ASSIGN_OR_RETURN(const int buffer, BufferId());
      call.buffers.push_back(buffer);
    } while (lines_.Rest().starts_with(", b") && lines_.Take(", "));
    return absl::OkStatus();
  };
  QUENCH_RETURN_IF_ERROR(lines_.Expect("("));
  if (!lines_.Take(")")) {
    QUENCH_RETURN_IF_ERROR(parse());
    QUENCH_RETURN_IF_ERROR(lines_.Expect(")"));
  }
  call.first_output = static_cast<int>(call.buffers.size());
  return lines_.Take(" -> ") ? parse() : absl::OkStatus();
}

absl::Status ProgramParser::ParseCallClause(CallStep& call) {
  if (lines_.Take("packs ")) {
    do {
      QUENCH_ASSIGN_OR_RETURN(const int pack, lines_.Id('w', INT32_MAX));
      call.packs.push_back(pack);
    } while (lines_.Take(" "));
  } else if (lines_.IsSize(" tasks")) {
    return ParseTasks(call);
  } else if (lines_.IsSize(" bytes of scratch")) {
    QUENCH_ASSIGN_OR_RETURN(call.kernel.scratch_bytes, Size());
    return lines_.Expect(" bytes of scratch");
  } else if (lines_.Take("scratch in ")) {
    QUENCH_ASSIGN_OR_RETURN(call.scratch_storage, StorageId());
  } else if (lines_.Take("may write over ")) {
    const size_t at = lines_.offset();
    QUENCH_ASSIGN_OR_RETURN(const int input, BufferId());
    const auto end = call.buffers.begin() + call.first_output;
    const auto found = std::find(call.buffers.begin(), end, input);
    if (found == end) return lines_.ErrorAt(at, fmt::format("b{} is not an input of the call", input));
    call.in_place = static_cast<int>(found - call.buffers.begin());
  } else if (lines_.TakeClause("unfused")) {
    call.kernel.fuses = false;
  } else {
    return lines_.Expected(
        "`packs w0 w1`, `4 tasks by 2`, `64 bytes of scratch`, `scratch in s0`, `may write over b0` or "
        "`unfused`");
  }
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseTasks(CallStep& call) {
  QUENCH_ASSIGN_OR_RETURN(call.kernel.tasks, Size());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" tasks"));
  if (!lines_.Take(" by ")) return absl::OkStatus();
  call.parallel = true;
  call.one_range = lines_.TakeClause("thread");
  if (call.one_range) return absl::OkStatus();
  constexpr int64_t kMostTogether = 1'000'000'000'000'000;
  QUENCH_ASSIGN_OR_RETURN(call.grain, lines_.Number(kMostTogether));
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseKernel(CallStep& call) {
  const size_t at = lines_.offset();
  if (lines_.TakeClause("loops")) {
    call.kernel.code = std::make_shared<const ReadKernel>("");
    return lines_.EndLine();
  }
  if (!lines_.Take("plan ")) return lines_.Expected("`loops` or `plan` and a plan");
  const Kernel* family = FamilyOf(call.kernel.name);
  if (family == nullptr) {
    return lines_.ErrorAt(at, fmt::format("kernel `{}` has loops, not a plan", call.kernel.name));
  }
  absl::StatusOr<std::string> plan = family->reread(lines_.TakeRest(), symbols_);
  if (!plan.ok()) return lines_.ErrorAt(at, MessageOf(plan.status()));
  call.kernel.code = std::make_shared<const ReadKernel>(*std::move(plan));
  return lines_.EndLine();
}

absl::Status ProgramParser::ParseRows(CallStep& call) {
  const size_t at = lines_.offset();
  RowOrder rows;
  const auto inputs = static_cast<size_t>(call.first_output);
  if (inputs == 0 || inputs == call.buffers.size())
    return lines_.Error("a call that goes through rows has inputs and outputs");
  QUENCH_ASSIGN_OR_RETURN(const int64_t input, lines_.Number(call.first_output - 1));
  rows.input = static_cast<int>(input);
  QUENCH_RETURN_IF_ERROR(lines_.Expect(": needs "));
  QUENCH_ASSIGN_OR_RETURN(rows.needs, ParseRuns());
  QUENCH_RETURN_IF_ERROR(lines_.Expect("; makes "));
  QUENCH_ASSIGN_OR_RETURN(rows.makes, ParseRuns());
  if (rows.needs.size() != rows.makes.size()) {
    return lines_.ErrorAt(at, fmt::format("{} tasks need rows and {} make some: each does both",
                                          rows.needs.size(), rows.makes.size()));
  }
  if (lines_.Take("; ")) {
    QUENCH_ASSIGN_OR_RETURN(call.cost, lines_.Decimal());
    QUENCH_RETURN_IF_ERROR(lines_.Expect(" us"));
  }
  call.rows = std::move(rows);
  return lines_.EndLine();
}

absl::StatusOr<std::vector<int64_t>> ProgramParser::ParseRuns() {
  std::vector<int64_t> numbers;
  do {
    QUENCH_RETURN_IF_ERROR(ParseRun(numbers));
  } while (lines_.Take(", "));
  return numbers;
}

// "5", "5 x 3", "5..9" or "5..9 by 2".
absl::Status ProgramParser::ParseRun(std::vector<int64_t>& numbers) {
  const size_t at = lines_.offset();
  QUENCH_ASSIGN_OR_RETURN(const int64_t first, lines_.Number(kMostBytes));
  int64_t count = 1, by = 0;
  if (lines_.Take(" x ")) {
    QUENCH_ASSIGN_OR_RETURN(count, lines_.Number(kMostBytes));
  } else if (lines_.Take("..")) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t last, lines_.Number(kMostBytes));
    by = 1;
    if (lines_.Take(" by ")) {
      QUENCH_ASSIGN_OR_RETURN(by, lines_.Number(kMostBytes));
    }
    if (by == 0 || last < first || (last - first) % by != 0)
      return lines_.ErrorAt(at, fmt::format("{}..{} by {} does not end at {}", first, last, by, last));
    count = (last - first) / by + 1;
  }
  if (static_cast<size_t>(count) > kMostRows - rows_)
    return lines_.ErrorAt(at, fmt::format("tasks have more than {} numbers of rows", kMostRows));
  rows_ += static_cast<size_t>(count);
  for (int64_t i = 0; i < count; ++i) numbers.push_back(first + i * by);
  return absl::OkStatus();
}

// ---- control ----

absl::Status ProgramParser::ParseIf(int depth, Step& step) {
  IfStep branches;
  QUENCH_ASSIGN_OR_RETURN(branches.condition, BufferId());
  QUENCH_RETURN_IF_ERROR(EndStep(step));
  QUENCH_RETURN_IF_ERROR(ParseBlock("then", depth, branches.then_steps));
  QUENCH_RETURN_IF_ERROR(ParseBlock("else", depth, branches.else_steps));
  step.action = std::move(branches);
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseLoop(int depth, Step& step) {
  LoopStep loop;
  if (lines_.Take(" ")) {
    loop.fixed_trips = true;
    QUENCH_ASSIGN_OR_RETURN(loop.trips, Size());
    QUENCH_RETURN_IF_ERROR(lines_.Expect(" times"));
  }
  while (!IsAtNode() && lines_.Take(", ")) QUENCH_RETURN_IF_ERROR(ParseLoopClause(loop));
  QUENCH_RETURN_IF_ERROR(EndStep(step));
  QUENCH_RETURN_IF_ERROR(ParseBlock("do", depth, loop.body));
  step.action = std::move(loop);
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseLoopClause(LoopStep& loop) {
  if (lines_.Take("counted in slot ")) {
    QUENCH_ASSIGN_OR_RETURN(loop.iteration_slot, Slot());
  } else if (lines_.Take("while ")) {
    QUENCH_ASSIGN_OR_RETURN(loop.condition, BufferId());
  } else if (lines_.Take("then ")) {
    QUENCH_ASSIGN_OR_RETURN(loop.condition_out, BufferId());
  } else if (lines_.Take("counted in ")) {
    QUENCH_ASSIGN_OR_RETURN(loop.iteration, BufferId());
  } else if (lines_.Take("told in ")) {
    QUENCH_ASSIGN_OR_RETURN(loop.condition_in, BufferId());
  } else if (Starts('b')) {
    QUENCH_ASSIGN_OR_RETURN(loop.trip_count, BufferId());
    return lines_.Expect(" times");
  } else {
    return lines_.Expected(
        "`b0 times`, `while b0`, `then b0`, `counted in slot 0`, `counted in b0` or `told in b0`");
  }
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseBands(int depth, Step& step) {
  constexpr int kOfLast = -2;
  BandsStep bands;
  QUENCH_RETURN_IF_ERROR(EndStep(step, kOfLast));
  QUENCH_RETURN_IF_ERROR(ParseBlock("of", depth, bands.body));
  if (step.node == kOfLast) step.node = NodeOf(bands, node_);
  if (lines_.depth() != depth) return lines_.Expected("`on one thread tasks `");
  QUENCH_RETURN_IF_ERROR(lines_.Expect("on one thread tasks "));
  do {
    QUENCH_RETURN_IF_ERROR(ParseRange(bands));
  } while (lines_.Take(", "));
  step.action = std::move(bands);
  return lines_.EndLine();
}

absl::Status ProgramParser::ParseRange(BandsStep& bands) {
  const size_t at = lines_.offset();
  QUENCH_ASSIGN_OR_RETURN(const int position, Position());
  const auto call = std::find_if(bands.body.begin(), bands.body.end(), [&](const Step& step) {
    return step.position == position && step.As<CallStep>() != nullptr;
  });
  if (call == bands.body.end())
    return lines_.ErrorAt(at, fmt::format("the bands have no call at {}", position));
  BandsStep::Range range{static_cast<int>(call - bands.body.begin()), 0, 0};
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" "));
  QUENCH_ASSIGN_OR_RETURN(range.begin, lines_.Number(kMostBytes));
  QUENCH_RETURN_IF_ERROR(lines_.Expect(".."));
  QUENCH_ASSIGN_OR_RETURN(range.end, lines_.Number(kMostBytes));
  bands.order.push_back(range);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> ParseProgram(const std::string& text, SymbolTable& symbols) {
  if (text.size() > kMaxGraphText)
    return InvalidArgument("the text has {} bytes, at most {} are read", text.size(), kMaxGraphText);
  return ProgramParser(text, symbols).Parse();
}

}  // namespace quench::codegen
