// The inside of ParseProgram, shared by the program_parse*.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/codegen/plan/line_reader.h"
#include "services/codegen/plan/program.h"

namespace quench::codegen {

inline constexpr int64_t kMostBytes = int64_t{1} << 46;  // as laid_out_sizes.h has it
inline constexpr int64_t kMostPositions = 1 << 20;

// A kernel that has no code, because it was read from a text; `plan` is empty for loops.
std::shared_ptr<const VectorCode> KernelOfText(std::string plan);

class ProgramParser {
 public:
  ProgramParser(const std::string& text, SymbolTable& symbols)
      : text_(text), lines_(text), symbols_(symbols) {}

  absl::StatusOr<Program> Parse();

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
  absl::Status ParseSides(std::vector<uint32_t>& sides);
  absl::Status ParseValue();
  absl::Status ParsePlan();
  absl::Status ParseDevicePlan();
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
    return lines_.ErrorAt(
        at, fmt::format("{} is not a size: those are from 0 to {}", dim.value(), kMostBytes));
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
  absl::Status ParseLaunch(int depth, Step& step);
  absl::Status ParseAllocate(int depth, Step& step);
  absl::Status ParseFree(int depth, Step& step);
  absl::Status ParseMove(int depth, Step& step);
  absl::Status ParseCopy(int depth, Step& step);
  absl::Status ParseTransfer(int depth, Step& step);
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
  std::vector<bool> has_shape_;                       // by storage
  std::vector<std::optional<PlacedStorage>> places_;  // by storage
};

}  // namespace quench::codegen
