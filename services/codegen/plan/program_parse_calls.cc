// Calls of kernels.
#include <algorithm>

#include "services/codegen/plan/program_parser.h"

namespace quench::codegen {
namespace {

constexpr size_t kMostRows = size_t{1} << 22;  // of all calls: a range of a few characters is many

class ReadKernel final : public VectorCode {
 public:
  explicit ReadKernel(std::string plan) : plan_(std::move(plan)) {}
  absl::Status Emit(VectorBuilder&) const override {
    return absl::FailedPreconditionError(
        "the kernel was read from a text: it has a plan but no code");
  }
  std::string Text(const SymbolTable&) const override { return plan_; }

 private:
  const std::string plan_;
};

// The kernel whose plans a call has: a preparation has one of its kernel's.
const Kernel* FamilyOf(const std::string& call) {
  constexpr std::string_view kPrepare = "_prepare";
  const std::string name =
      call.ends_with(kPrepare) ? call.substr(0, call.size() - kPrepare.size()) : call;
  for (const Kernel* kernel : AllKernels()) {
    if (kernel->name == name && kernel->reread != nullptr) return kernel;
  }
  return nullptr;
}

// Whether ", b12" comes next, as a word of its own: sizes may begin with `b` too.
bool IsBuffer(std::string_view rest) {
  if (!rest.starts_with(", b")) return false;
  rest.remove_prefix(3);
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  return digits > 0 && (digits == rest.size() || rest[digits] == ',' || rest[digits] == ')' ||
                        rest.substr(digits).starts_with(" -> "));
}

}  // namespace

std::shared_ptr<const VectorCode> KernelOfText(std::string plan) {
  return std::make_shared<const ReadKernel>(std::move(plan));
}

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

absl::Status ProgramParser::ParseLaunch(int depth, Step& step) {
  QUENCH_RETURN_IF_ERROR(ParseCall(depth, step));
  step.As<CallStep>()->on_device = true;
  return absl::OkStatus();
}

absl::Status ProgramParser::ParseArguments(CallStep& call) {
  const auto parse = [&]() -> absl::Status {
    do {
      QUENCH_ASSIGN_OR_RETURN(const int buffer, BufferId());
      call.buffers.push_back(buffer);
    } while (IsBuffer(lines_.Rest()) && lines_.Take(", "));
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
    if (found == end)
      return lines_.ErrorAt(at, fmt::format("b{} is not an input of the call", input));
    call.in_place = static_cast<int>(found - call.buffers.begin());
  } else if (lines_.TakeClause("updates")) {
    call.updates = true;
  } else if (lines_.TakeClause("unfused")) {
    call.kernel.fuses = false;
  } else {
    return lines_.Expected(
        "`packs w0 w1`, `4 tasks by 2`, `64 bytes of scratch`, `scratch in s0`, `may write over "
        "b0`, `updates` or "
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
    call.kernel.code = KernelOfText("");
    return lines_.EndLine();
  }
  if (!lines_.Take("plan ")) return lines_.Expected("`loops` or `plan` and a plan");
  const Kernel* family = FamilyOf(call.kernel.name);
  if (family == nullptr) {
    return lines_.ErrorAt(at, fmt::format("kernel `{}` has loops, not a plan", call.kernel.name));
  }
  absl::StatusOr<std::string> plan = family->reread(lines_.TakeRest(), symbols_);
  if (!plan.ok()) return lines_.ErrorAt(at, MessageOf(plan.status()));
  call.kernel.code = KernelOfText(*std::move(plan));
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
      return lines_.ErrorAt(at,
                            fmt::format("{}..{} by {} does not end at {}", first, last, by, last));
    count = (last - first) / by + 1;
  }
  if (static_cast<size_t>(count) > kMostRows - rows_)
    return lines_.ErrorAt(at, fmt::format("tasks have more than {} numbers of rows", kMostRows));
  rows_ += static_cast<size_t>(count);
  for (int64_t i = 0; i < count; ++i) numbers.push_back(first + i * by);
  return absl::OkStatus();
}

}  // namespace quench::codegen
