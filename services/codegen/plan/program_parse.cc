// The text of a program but for its steps.
#include "services/codegen/plan/program_parse.h"

#include <algorithm>
#include <iterator>

#include "common/ir/text.h"
#include "common/ir/text_parts.h"
#include "services/codegen/plan/program_parser.h"
#include "services/codegen/plan/program_words.h"

namespace quench::codegen {

absl::StatusOr<Program> ProgramParser::Parse() {
  QUENCH_RETURN_IF_ERROR(ParseHead());
  while (Starts('s')) QUENCH_RETURN_IF_ERROR(ParseStorage());
  while (Starts('b')) QUENCH_RETURN_IF_ERROR(ParseBuffer());
  while (lines_.Take("tap ")) QUENCH_RETURN_IF_ERROR(ParseTap());
  if (lines_.Take("inputs on ")) QUENCH_RETURN_IF_ERROR(ParseSides(program_.input_sides));
  if (lines_.Take("outputs on ")) QUENCH_RETURN_IF_ERROR(ParseSides(program_.output_sides));
  QUENCH_RETURN_IF_ERROR(ParseSteps(0, program_.steps));
  while (lines_.Take("value ")) QUENCH_RETURN_IF_ERROR(ParseValue());
  if (lines_.Take("plan: ")) QUENCH_RETURN_IF_ERROR(ParsePlan());
  if (!lines_.AtEnd()) {
    return lines_.Expected(
        "the end, or a line in this order: symbols, storages, buffers, taps, inputs, outputs, "
        "steps, values, plan");
  }
  QUENCH_RETURN_IF_ERROR(CheckUses());
  QUENCH_RETURN_IF_ERROR(FillStorages());
  return std::move(program_);
}

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
  storage.device = lines_.Take(kDeviceWord);
  const auto home = std::find_if(std::begin(kHomeNames), std::end(kHomeNames),
                                 [this](const char* name) { return lines_.Take(name); });
  if (home == std::end(kHomeNames)) return lines_.Expected("arena, input, output, weights or heap");
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
      return lines_.Error(
          fmt::format("s{} ends before it begins: one that nothing lies in is "
                      "`given up`",
                      program_.storages.size()));
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
        "`shared`, `moved`, `becomes output 0`, `at 64`, `at slot 0`, `typically 64 bytes at 64` "
        "or "
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
                                                 "`NHWC` or `NCHW8c`",
                                                 text, rank));
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

absl::Status ProgramParser::ParseSides(std::vector<uint32_t>& sides) {
  do {
    const auto* name = std::find_if(std::begin(kSideNames), std::end(kSideNames),
                                    [this](const char* each) { return lines_.Take(each); });
    if (name == std::end(kSideNames)) return lines_.Expected("neither, host, device or both");
    sides.push_back(static_cast<uint32_t>(name - std::begin(kSideNames)));
  } while (lines_.Take(", "));
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
    return lines_.ErrorAt(at,
                          fmt::format("slot {} is a symbol's: the {} symbols of the text have the "
                                      "first slots",
                                      slot, symbols_.size()));
  }
  program_.plan.name = "plan";
  program_.plan.code = KernelOfText("");
  QUENCH_RETURN_IF_ERROR(lines_.EndLine());
  return lines_.Take("device plan: arena in ") ? ParseDevicePlan() : absl::OkStatus();
}

absl::Status ProgramParser::ParseDevicePlan() {
  QUENCH_ASSIGN_OR_RETURN(program_.device_arena_slot, Slot());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", lower bound in "));
  QUENCH_ASSIGN_OR_RETURN(program_.device_lower_bound_slot, Slot());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(", scratch in "));
  QUENCH_ASSIGN_OR_RETURN(program_.device_scratch_slot, Slot());
  QUENCH_RETURN_IF_ERROR(lines_.EndLine());
  QUENCH_RETURN_IF_ERROR(lines_.Expect("device arena "));
  QUENCH_ASSIGN_OR_RETURN(program_.typical_device_bytes, lines_.Number(kMostBytes));
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" bytes at typical sizes, at least "));
  QUENCH_ASSIGN_OR_RETURN(program_.typical_device_lower_bound, lines_.Number(kMostBytes));
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
    if (place.storage < 0) continue;
    (storage.device ? program_.typical_device_places : program_.typical_places).push_back(place);
  }
  for (auto* places : {&program_.typical_places, &program_.typical_device_places}) {
    std::stable_sort(
        places->begin(), places->end(),
        [](const PlacedStorage& a, const PlacedStorage& b) { return a.offset < b.offset; });
  }
  return absl::OkStatus();
}

absl::StatusOr<Program> ParseProgram(const std::string& text, SymbolTable& symbols) {
  if (text.size() > kMaxGraphText)
    return InvalidArgument("the text has {} bytes, at most {} are read", text.size(),
                           kMaxGraphText);
  return ProgramParser(text, symbols).Parse();
}

}  // namespace quench::codegen
