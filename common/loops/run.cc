#include "common/loops/run.h"

#include <absl/base/attributes.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/status.h"
#include "common/loops/scalar.h"

namespace quench::loops {
namespace {

// Instructions (as Instr::imm of loop ends estimates them) between two looks at the context: a few
// milliseconds.
constexpr int64_t kBudget = 1'000'000;

// Where a failed program goes on.
constexpr Instr kStop = {.op = Op::kEnd};

// State for every instruction: the place in the program and the two register files. A local of
// Run() whose address goes nowhere, so that the compiler keeps it in registers.
struct Frame {
  const Instr* pc = nullptr;  // the next instruction
  std::byte* s_file = nullptr;
  std::byte* v_file = nullptr;
  int64_t n = 1;  // lanes in use
  int64_t budget = kBudget;

  std::byte* S(int32_t offset) const { return s_file + offset; }
  std::byte* V(int32_t offset) const { return v_file + offset; }
  int64_t* LaneIndices(int32_t offset) const { return reinterpret_cast<int64_t*>(V(offset)); }
  bool* LaneBools(int32_t offset) const { return reinterpret_cast<bool*>(V(offset)); }
  const bool* Mask(int32_t offset) const { return offset == kNoMask ? nullptr : LaneBools(offset); }

  template <typename T>
  T Get(int32_t offset) const {
    T value;
    std::memcpy(&value, s_file + offset, sizeof(T));
    return value;
  }
  int64_t I64(int32_t offset) const { return Get<int64_t>(offset); }
  float F32(int32_t offset) const { return Get<float>(offset); }
  bool Bool(int32_t offset) const { return Get<bool>(offset); }
  template <typename T>
  void Put(int32_t offset, T value) const {
    std::memcpy(s_file + offset, &value, sizeof(T));
  }

  // Element offsets, of scalar accesses and of a vector's first lane.
  int64_t Address(const Instr& i) const {
    return scalar::Add(scalar::Add(I64(i.a), scalar::Mul(I64(i.b), i.imm)), i.imm2);
  }
  int64_t First(const Instr& i) const { return scalar::Add(I64(i.a), i.imm2); }
};

// One method an instruction, named as in instructions.def, which says what each does.
class Machine {
 public:
  Machine(const Program& program, const std::string& name, std::span<int64_t> slots,
          const StepContext& context)
      : program_(program),
        name_(name),
        slots_(slots),
        context_(context),
        scalars_(program.scalars),
        // One spare register: an all-zero file still has an address.
        lanes_(static_cast<size_t>(program.lane_registers + 1) * kLanes) {}

  absl::Status Run();

 private:
  // ---- Control ----

  static void Go(Frame& f, const Instr& i) { f.pc = &i + i.jump; }

  static int64_t LanesBetween(int64_t begin, int64_t end) {
    return static_cast<int64_t>(
        std::min<uint64_t>(kLanes, static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)));
  }

  static void Loop(Frame& f, const Instr& i) {
    const int64_t begin = f.I64(i.a);
    f.Put(i.d, begin);
    if (begin >= f.I64(i.b)) Go(f, i);
  }

  void Next(Frame& f, const Instr& i) {
    const int64_t next = f.I64(i.d) + 1;  // below the end, so it does not overflow
    f.Put(i.d, next);
    if (next < f.I64(i.b)) Go(f, i);
    Spend(f, i);
  }

  static void LanesLoop(Frame& f, const Instr& i) {
    const int64_t begin = f.I64(i.a);
    const int64_t end = f.I64(i.b);
    f.Put(i.d, begin);
    if (begin >= end) return Go(f, i);
    f.n = LanesBetween(begin, end);
  }

  void LanesNext(Frame& f, const Instr& i) {
    const int64_t next = f.I64(i.d) + f.n;
    const int64_t end = f.I64(i.b);
    f.Put(i.d, next);
    if (next < end) {
      f.n = LanesBetween(next, end);
      Go(f, i);
    }
    Spend(f, i);
  }

  void Jump(Frame& f, const Instr& i) {
    Go(f, i);
    Spend(f, i);
  }

  static void JumpIfFalse(Frame& f, const Instr& i) {
    if (!f.Bool(i.a)) Go(f, i);
  }

  static void JumpIfNone(Frame& f, const Instr& i) {
    if (std::memchr(f.V(i.a), 1, static_cast<size_t>(f.n)) == nullptr) Go(f, i);
  }

  // ---- Scalars ----

  static void Unary(Frame& f, const Instr& i) { i.fn.unary(f.S(i.d), f.S(i.a), 1); }
  static void Binary(Frame& f, const Instr& i) { i.fn.binary(f.S(i.d), f.S(i.a), f.S(i.b), 1); }
  static void Select(Frame& f, const Instr& i) {
    i.fn.select(f.S(i.d), f.S(i.c), f.S(i.a), f.S(i.b), 1);
  }
  static void Move(Frame& f, const Instr& i) { f.Put(i.d, f.Get<uint64_t>(i.a)); }
  static void MulAddIndex(Frame& f, const Instr& i) {
    f.Put(i.d, scalar::Add(f.I64(i.a), scalar::Mul(f.I64(i.b), i.imm)));
  }
  static void AddI64(Frame& f, const Instr& i) { f.Put(i.d, scalar::Add(f.I64(i.a), f.I64(i.b))); }
  static void SubI64(Frame& f, const Instr& i) { f.Put(i.d, scalar::Sub(f.I64(i.a), f.I64(i.b))); }
  static void MulI64(Frame& f, const Instr& i) { f.Put(i.d, scalar::Mul(f.I64(i.a), f.I64(i.b))); }
  static void AddF32(Frame& f, const Instr& i) { f.Put(i.d, f.F32(i.a) + f.F32(i.b)); }
  static void SubF32(Frame& f, const Instr& i) { f.Put(i.d, f.F32(i.a) - f.F32(i.b)); }
  static void MulF32(Frame& f, const Instr& i) { f.Put(i.d, f.F32(i.a) * f.F32(i.b)); }
  static void DivF32(Frame& f, const Instr& i) { f.Put(i.d, f.F32(i.a) / f.F32(i.b)); }
  static void MulAddF32(Frame& f, const Instr& i) {
    f.Put(i.d, f.F32(i.c) + f.F32(i.a) * f.F32(i.b));
  }
  static void LtI64(Frame& f, const Instr& i) { f.Put(i.d, f.I64(i.a) < f.I64(i.b)); }

  static void Load4(Frame& f, const Instr& i) {
    std::memcpy(f.S(i.d), i.memory + f.Address(i) * 4, 4);
  }
  static void Load8(Frame& f, const Instr& i) {
    std::memcpy(f.S(i.d), i.memory + f.Address(i) * 8, 8);
  }
  static void Load(Frame& f, const Instr& i) { i.fn.load(f.S(i.d), i.memory, f.Address(i), 0, 1); }
  static void Store4(Frame& f, const Instr& i) {
    std::memcpy(i.memory + f.Address(i) * 4, f.S(i.d), 4);
  }
  static void Store8(Frame& f, const Instr& i) {
    std::memcpy(i.memory + f.Address(i) * 8, f.S(i.d), 8);
  }
  static void Store(Frame& f, const Instr& i) {
    i.fn.store(i.memory, f.S(i.d), f.Address(i), 0, 1);
  }

  void Bound(Frame& f, const Instr& i) {
    const int64_t index = f.Address(i);
    if (!Inside(index, LimitOf(i))) Fail(f, i, index);
  }
  void Check(Frame& f, const Instr& i) {
    if (!f.Bool(i.a)) Fail(f, i, 0);
  }
  void GetSlot(Frame& f, const Instr& i) { f.Put(i.d, slots_[static_cast<size_t>(i.imm)]); }
  void SetSlot(Frame& f, const Instr& i) { slots_[static_cast<size_t>(i.imm)] = f.I64(i.a); }

  // ---- Lanes ----

  static void LaneUnary(Frame& f, const Instr& i) { i.fn.unary(f.V(i.d), f.V(i.a), f.n); }
  static void LaneBinary(Frame& f, const Instr& i) {
    i.fn.binary(f.V(i.d), f.V(i.a), f.V(i.b), f.n);
  }
  static void LaneSelect(Frame& f, const Instr& i) {
    i.fn.select(f.V(i.d), f.V(i.c), f.V(i.a), f.V(i.b), f.n);
  }
  static void Splat(Frame& f, const Instr& i) { i.fn.unary(f.V(i.d), f.S(i.a), f.n); }

  static void Iota(Frame& f, const Instr& i) {
    const int64_t first = f.I64(i.a);
    int64_t* d = f.LaneIndices(i.d);
    for (int64_t lane = 0; lane < f.n; ++lane) d[lane] = scalar::Add(first, lane);
  }
  static void LaneAffine(Frame& f, const Instr& i) {
    const int64_t first = f.First(i);
    const int64_t* b = f.LaneIndices(i.b);
    int64_t* d = f.LaneIndices(i.d);
    for (int64_t lane = 0; lane < f.n; ++lane)
      d[lane] = scalar::Add(first, scalar::Mul(b[lane], i.imm));
  }
  static void LaneMulAdd(Frame& f, const Instr& i) {
    const int64_t* a = f.LaneIndices(i.a);
    const int64_t* b = f.LaneIndices(i.b);
    int64_t* d = f.LaneIndices(i.d);
    for (int64_t lane = 0; lane < f.n; ++lane)
      d[lane] = scalar::Add(a[lane], scalar::Mul(b[lane], i.imm));
  }

  static void LaneLoad(Frame& f, const Instr& i) {
    i.fn.load(f.V(i.d), i.memory, f.First(i), i.imm, f.n);
  }
  static void ClampedLoad(Frame& f, const Instr& i) {
    const Instr& data = *f.pc++;
    LoadClamped(i, data, f.V(i.d), f.First(i), f.Mask(i.b), f.First(data), f.I64(data.b),
                f.I64(data.c), f.n);
  }
  static void Data(Frame&, const Instr&) {}
  static void LaneCompare(Frame& f, const Instr& i) {
    CompareLanes(static_cast<BinaryOp>(i.c), f.LaneBools(i.d), f.I64(i.a) + i.imm2, i.imm, f.n);
  }
  static void LaneStore(Frame& f, const Instr& i) {
    i.fn.store(i.memory, f.V(i.d), f.First(i), i.imm, f.n);
  }
  static void Gather(Frame& f, const Instr& i) {
    i.fn.gather(f.V(i.d), i.memory, f.LaneIndices(i.a), f.Mask(i.c), f.n);
  }
  static void Scatter(Frame& f, const Instr& i) {
    i.fn.scatter(i.memory, f.V(i.d), f.LaneIndices(i.a), f.Mask(i.c), f.n);
  }
  static void LaneFold(Frame& f, const Instr& i) { i.fn.fold(f.S(i.d), f.V(i.a), f.n); }

  void LaneBound(Frame& f, const Instr& i) {
    const int64_t first = f.First(i);
    const int64_t limit = LimitOf(i);
    const auto at = [&](int64_t lane) { return scalar::Add(first, scalar::Mul(lane, i.imm)); };
    // The indices run in one direction, so the outermost two tell of all: but not when the sum
    // wraps around.
    constexpr int64_t kSafe = int64_t{1} << 48;
    const bool monotone = i.imm > -kSafe && i.imm < kSafe;
    if (monotone && Inside(first, limit) && Inside(at(f.n - 1), limit)) return;
    const bool* mask = f.Mask(i.b);
    for (int64_t lane = 0; lane < f.n; ++lane) {
      if ((mask == nullptr || mask[lane]) && !Inside(at(lane), limit)) return Fail(f, i, at(lane));
    }
  }
  void GatherBound(Frame& f, const Instr& i) {
    const int64_t* indices = f.LaneIndices(i.a);
    const bool* mask = f.Mask(i.b);
    const int64_t limit = LimitOf(i);
    for (int64_t lane = 0; lane < f.n; ++lane) {
      const bool active = mask == nullptr || mask[lane];
      if (active && !Inside(indices[lane], limit)) return Fail(f, i, indices[lane]);
    }
  }
  void LaneCheck(Frame& f, const Instr& i) {
    const bool* holds = f.LaneBools(i.a);
    const bool* active = f.Mask(i.b);
    for (int64_t lane = 0; lane < f.n; ++lane) {
      if (!holds[lane] && (active == nullptr || active[lane])) return Fail(f, i, 0);
    }
  }

  // ---- What the instructions share ----

  void Stop(Frame& f, absl::Status status) {
    status_ = std::move(status);
    f.pc = &kStop;
  }

  // Fails with the trap that the instruction names: as the check it is, or of `index`.
  ABSL_ATTRIBUTE_NOINLINE absl::Status Failure(const Instr& i, int64_t index) const {
    const Trap& trap = program_.traps[static_cast<size_t>(i.c)];
    if (!trap.bound) return absl::InvalidArgumentError(trap.text);
    return Internal("`{}`: index {} of dim {} of buffer `{}` is out of range, it has {} elements",
                    name_, index, trap.dim, trap.text, trap.limit);
  }
  void Fail(Frame& f, const Instr& i, int64_t index) { Stop(f, Failure(i, index)); }

  // Work was done; looks at the context now and then.
  void Spend(Frame& f, const Instr& i) {
    f.budget -= i.imm;
    if (f.budget >= 0) return;
    f.budget = kBudget;
    if (absl::Status status = context_.Check(); !status.ok()) Stop(f, std::move(status));
  }

  int64_t LimitOf(const Instr& i) const { return program_.traps[static_cast<size_t>(i.c)].limit; }
  static bool Inside(int64_t index, int64_t limit) {
    return static_cast<uint64_t>(index) < static_cast<uint64_t>(limit);
  }

  static void LoadClamped(const Instr& i, const Instr& data, std::byte* d, int64_t base,
                          const bool* mask, int64_t first, int64_t lo, int64_t hi, int64_t n);
  static void CompareLanes(BinaryOp op, bool* d, int64_t first, int64_t step, int64_t n);
  static bool Holds(BinaryOp op, int64_t value);

  const Program& program_;
  const std::string& name_;
  std::span<int64_t> slots_;
  const StepContext& context_;
  std::vector<uint64_t> scalars_;
  std::vector<uint64_t> lanes_;
  absl::Status status_;
};

// Where nothing needs clamping this is an ordinary load.
void Machine::LoadClamped(const Instr& i, const Instr& data, std::byte* d, int64_t base,
                          const bool* mask, int64_t first, int64_t lo, int64_t hi, int64_t n) {
  const int64_t last = scalar::Add(first, scalar::Mul(n - 1, data.imm));
  if (std::min(first, last) >= lo && std::max(first, last) <= hi) {
    i.fn.load(d, i.memory, scalar::Add(base, scalar::Mul(first, i.imm)),
              scalar::Mul(data.imm, i.imm), n);
    return;
  }
  int64_t offsets[kLanes];
  for (int64_t lane = 0; lane < n; ++lane) {
    const int64_t x = scalar::Add(first, scalar::Mul(lane, data.imm));
    offsets[lane] = scalar::Add(base, scalar::Mul(std::max(std::min(x, hi), lo), i.imm));
  }
  data.fn.gather(d, i.memory, offsets, mask, n);
}

bool Machine::Holds(BinaryOp op, int64_t value) {
  switch (op) {
    case BinaryOp::kLt:
      return value < 0;
    case BinaryOp::kLe:
      return value <= 0;
    case BinaryOp::kGt:
      return value > 0;
    case BinaryOp::kGe:
      return value >= 0;
    case BinaryOp::kEq:
      return value == 0;
    default:
      return value != 0;
  }
}

// The values do not wrap around, so an ordering that holds for both ends holds between them.
void Machine::CompareLanes(BinaryOp op, bool* d, int64_t first, int64_t step, int64_t n) {
  const bool ordering = op != BinaryOp::kEq && op != BinaryOp::kNe;
  const bool at_first = Holds(op, first);
  if (ordering && at_first == Holds(op, first + (n - 1) * step)) {
    std::memset(d, at_first ? 1 : 0, static_cast<size_t>(n));
    return;
  }
  for (int64_t lane = 0; lane < n; ++lane) d[lane] = Holds(op, first + lane * step);
}

absl::Status Machine::Run() {
  Frame f;
  f.pc = program_.code.data();
  f.s_file = reinterpret_cast<std::byte*>(scalars_.data());
  f.v_file = reinterpret_cast<std::byte*>(lanes_.data());
  for (;;) {
    const Instr& i = *f.pc++;
    switch (i.op) {
      case Op::kEnd:
        return std::move(status_);
#define INSTRUCTION(name) \
  case Op::k##name:       \
    name(f, i);           \
    break;
#include "common/loops/instructions.def"
#undef INSTRUCTION
    }
  }
}

}  // namespace

absl::Status RunProgram(const Program& program, const std::string& name, std::span<int64_t> slots,
                        const StepContext& context) {
  return Machine(program, name, slots, context).Run();
}

}  // namespace quench::loops
