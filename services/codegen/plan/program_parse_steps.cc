// Steps but for calls.
#include <algorithm>

#include "services/codegen/plan/program_parser.h"
#include "services/codegen/plan/program_words.h"

namespace quench::codegen {
namespace {

constexpr int kMostNesting = 64;

}  // namespace

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
                  {"launch ", &ProgramParser::ParseLaunch},
                  {"transfer ", &ProgramParser::ParseTransfer},
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

absl::Status ProgramParser::ParseTransfer(int, Step& step) {
  TransferStep transfer;
  QUENCH_ASSIGN_OR_RETURN(transfer.from, BufferId());
  QUENCH_RETURN_IF_ERROR(lines_.Expect(" to "));
  QUENCH_ASSIGN_OR_RETURN(transfer.to, BufferId());
  step.action = transfer;
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
    return lines_.ErrorAt(
        at, fmt::format("there is no tap {}: {} are declared", number, program_.taps.size()));
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

}  // namespace quench::codegen
