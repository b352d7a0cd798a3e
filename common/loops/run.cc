#include "common/loops/run.h"

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
  absl::Status Fail(const Instr& instr, int64_t index) const {
    const Trap& trap = program_.traps[static_cast<size_t>(instr.c)];
    if (!trap.bound) return absl::InvalidArgumentError(trap.text);
    return Internal("`{}`: index {} of dim {} of buffer `{}` is out of range, it has {} elements",
                    name_, index, trap.dim, trap.text, trap.limit);
  }

  // Fails for the first lane whose index is out of range.
  absl::Status LaneBound(const Instr& instr, int64_t first, const bool* mask, int64_t n) const {
    const int64_t limit = program_.traps[static_cast<size_t>(instr.c)].limit;
    const auto outside = [&](int64_t index) {
      return static_cast<uint64_t>(index) >= static_cast<uint64_t>(limit);
    };
    const auto at = [&](int64_t lane) { return scalar::Add(first, scalar::Mul(lane, instr.imm)); };
    // The indices run in one direction, so the outermost two tell of all: but not when the sum
    // wraps around.
    constexpr int64_t kSafe = int64_t{1} << 48;
    const bool monotone = instr.imm > -kSafe && instr.imm < kSafe;
    if (monotone && !outside(first) && !outside(at(n - 1))) return absl::OkStatus();
    for (int64_t lane = 0; lane < n; ++lane) {
      if ((mask == nullptr || mask[lane]) && outside(at(lane))) return Fail(instr, at(lane));
    }
    return absl::OkStatus();
  }

  absl::Status GatherBound(const Instr& instr, const int64_t* indices, const bool* mask,
                           int64_t n) const {
    const uint64_t limit =
        static_cast<uint64_t>(program_.traps[static_cast<size_t>(instr.c)].limit);
    for (int64_t lane = 0; lane < n; ++lane) {
      const bool active = mask == nullptr || mask[lane];
      if (active && static_cast<uint64_t>(indices[lane]) >= limit)
        return Fail(instr, indices[lane]);
    }
    return absl::OkStatus();
  }

  // `i` and the kData after it. Where nothing needs clamping this is an ordinary load.
  void ClampedLoad(const Instr& i, std::byte* d, int64_t base, const bool* mask, int64_t first,
                   int64_t lo, int64_t hi, int64_t n) const {
    const Instr& data = (&i)[1];
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

  static bool Holds(BinaryOp op, int64_t value) {
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
  static void Compare(BinaryOp op, bool* d, int64_t first, int64_t step, int64_t n) {
    const bool ordering = op != BinaryOp::kEq && op != BinaryOp::kNe;
    const bool at_first = Holds(op, first);
    if (ordering && at_first == Holds(op, first + (n - 1) * step)) {
      std::memset(d, at_first ? 1 : 0, static_cast<size_t>(n));
      return;
    }
    for (int64_t lane = 0; lane < n; ++lane) d[lane] = Holds(op, first + lane * step);
  }

  const Program& program_;
  const std::string& name_;
  std::span<int64_t> slots_;
  const StepContext& context_;
  std::vector<uint64_t> scalars_;
  std::vector<uint64_t> lanes_;
};

absl::Status Machine::Run() {
  std::byte* const s_file = reinterpret_cast<std::byte*>(scalars_.data());
  std::byte* const v_file = reinterpret_cast<std::byte*>(lanes_.data());
  const auto s = [&](int32_t offset) { return s_file + offset; };
  const auto v = [&](int32_t offset) { return v_file + offset; };
  const auto mask = [&](int32_t offset) {
    return offset == kNoMask ? nullptr : reinterpret_cast<const bool*>(v_file + offset);
  };
  const auto get = [&]<typename T>(T, int32_t offset) {
    T value;
    std::memcpy(&value, s_file + offset, sizeof(T));
    return value;
  };
  const auto i64 = [&](int32_t offset) { return get(int64_t{}, offset); };
  const auto f32 = [&](int32_t offset) { return get(float{}, offset); };
  const auto truth = [&](int32_t offset) { return get(bool{}, offset); };
  const auto put = [&](int32_t offset, auto value) {
    std::memcpy(s_file + offset, &value, sizeof(value));
  };
  const auto vi64 = [&](int32_t offset) { return reinterpret_cast<int64_t*>(v_file + offset); };
  const auto address = [&](const Instr& i) {
    return scalar::Add(scalar::Add(i64(i.a), scalar::Mul(i64(i.b), i.imm)), i.imm2);
  };
  int64_t n = 1;  // lanes in use
  int64_t budget = kBudget;
  const Instr* pc = program_.code.data();
  for (;;) {
    const Instr& i = *pc;
    ++pc;
    switch (i.op) {
      case Op::kEnd:
        return absl::OkStatus();
      case Op::kLanesLoop:
      case Op::kLoop: {
        const int64_t begin = i64(i.a);
        const int64_t end = i64(i.b);
        put(i.d, begin);
        if (begin >= end) {
          pc = &i + i.jump;
        } else if (i.op == Op::kLanesLoop) {
          n = static_cast<int64_t>(std::min<uint64_t>(
              kLanes, static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)));
        }
        break;
      }
      case Op::kNext: {
        const int64_t next = i64(i.d) + 1;  // below the end, so it does not overflow
        put(i.d, next);
        if (next < i64(i.b)) pc = &i + i.jump;
        budget -= i.imm;
        break;
      }
      case Op::kLanesNext: {
        const int64_t next = i64(i.d) + n;
        const int64_t end = i64(i.b);
        put(i.d, next);
        if (next < end) {
          n = static_cast<int64_t>(
              std::min<uint64_t>(kLanes, static_cast<uint64_t>(end) - static_cast<uint64_t>(next)));
          pc = &i + i.jump;
        }
        budget -= i.imm;
        break;
      }
      case Op::kJump:
        pc = &i + i.jump;
        budget -= i.imm;
        break;
      case Op::kJumpIfFalse:
        if (!truth(i.a)) pc = &i + i.jump;
        continue;
      case Op::kJumpIfNone:
        if (std::memchr(v(i.a), 1, static_cast<size_t>(n)) == nullptr) pc = &i + i.jump;
        continue;
      case Op::kUnary:
        i.fn.unary(s(i.d), s(i.a), 1);
        continue;
      case Op::kBinary:
        i.fn.binary(s(i.d), s(i.a), s(i.b), 1);
        continue;
      case Op::kSelect:
        i.fn.select(s(i.d), s(i.c), s(i.a), s(i.b), 1);
        continue;
      case Op::kMove:
        put(i.d, get(uint64_t{}, i.a));
        continue;
      case Op::kMulAddIndex:
        put(i.d, scalar::Add(i64(i.a), scalar::Mul(i64(i.b), i.imm)));
        continue;
      case Op::kAddI64:
        put(i.d, scalar::Add(i64(i.a), i64(i.b)));
        continue;
      case Op::kSubI64:
        put(i.d, scalar::Sub(i64(i.a), i64(i.b)));
        continue;
      case Op::kMulI64:
        put(i.d, scalar::Mul(i64(i.a), i64(i.b)));
        continue;
      case Op::kAddF32:
        put(i.d, f32(i.a) + f32(i.b));
        continue;
      case Op::kSubF32:
        put(i.d, f32(i.a) - f32(i.b));
        continue;
      case Op::kMulF32:
        put(i.d, f32(i.a) * f32(i.b));
        continue;
      case Op::kDivF32:
        put(i.d, f32(i.a) / f32(i.b));
        continue;
      case Op::kMulAddF32:
        put(i.d, f32(i.c) + f32(i.a) * f32(i.b));
        continue;
      case Op::kLtI64:
        put(i.d, i64(i.a) < i64(i.b));
        continue;
      case Op::kLoad4:
        std::memcpy(s(i.d), i.memory + address(i) * 4, 4);
        continue;
      case Op::kLoad8:
        std::memcpy(s(i.d), i.memory + address(i) * 8, 8);
        continue;
      case Op::kLoad:
        i.fn.load(s(i.d), i.memory, address(i), 0, 1);
        continue;
      case Op::kStore4:
        std::memcpy(i.memory + address(i) * 4, s(i.d), 4);
        continue;
      case Op::kStore8:
        std::memcpy(i.memory + address(i) * 8, s(i.d), 8);
        continue;
      case Op::kStore:
        i.fn.store(i.memory, s(i.d), address(i), 0, 1);
        continue;
      case Op::kBound: {
        const int64_t index = address(i);
        if (static_cast<uint64_t>(index) >=
            static_cast<uint64_t>(program_.traps[static_cast<size_t>(i.c)].limit)) {
          return Fail(i, index);
        }
        continue;
      }
      case Op::kCheck:
        if (!truth(i.a)) return Fail(i, 0);
        continue;
      case Op::kGetSlot:
        put(i.d, slots_[static_cast<size_t>(i.imm)]);
        continue;
      case Op::kSetSlot:
        slots_[static_cast<size_t>(i.imm)] = i64(i.a);
        continue;
      case Op::kLaneUnary:
        i.fn.unary(v(i.d), v(i.a), n);
        continue;
      case Op::kLaneBinary:
        i.fn.binary(v(i.d), v(i.a), v(i.b), n);
        continue;
      case Op::kLaneSelect:
        i.fn.select(v(i.d), v(i.c), v(i.a), v(i.b), n);
        continue;
      case Op::kSplat:
        i.fn.unary(v(i.d), s(i.a), n);
        continue;
      case Op::kIota: {
        const int64_t first = i64(i.a);
        int64_t* d = vi64(i.d);
        for (int64_t lane = 0; lane < n; ++lane) d[lane] = scalar::Add(first, lane);
        continue;
      }
      case Op::kLaneAffine: {
        const int64_t first = scalar::Add(i64(i.a), i.imm2);
        const int64_t* b = vi64(i.b);
        int64_t* d = vi64(i.d);
        for (int64_t lane = 0; lane < n; ++lane)
          d[lane] = scalar::Add(first, scalar::Mul(b[lane], i.imm));
        continue;
      }
      case Op::kLaneMulAdd: {
        const int64_t* a = vi64(i.a);
        const int64_t* b = vi64(i.b);
        int64_t* d = vi64(i.d);
        for (int64_t lane = 0; lane < n; ++lane)
          d[lane] = scalar::Add(a[lane], scalar::Mul(b[lane], i.imm));
        continue;
      }
      case Op::kLaneLoad:
        i.fn.load(v(i.d), i.memory, scalar::Add(i64(i.a), i.imm2), i.imm, n);
        continue;
      case Op::kClampedLoad: {
        const Instr& data = *pc++;
        ClampedLoad(i, v(i.d), scalar::Add(i64(i.a), i.imm2), mask(i.b),
                    scalar::Add(i64(data.a), data.imm2), i64(data.b), i64(data.c), n);
        continue;
      }
      case Op::kData:
        continue;
      case Op::kLaneCompare:
        Compare(static_cast<BinaryOp>(i.c), reinterpret_cast<bool*>(v(i.d)), i64(i.a) + i.imm2,
                i.imm, n);
        continue;
      case Op::kLaneStore:
        i.fn.store(i.memory, v(i.d), scalar::Add(i64(i.a), i.imm2), i.imm, n);
        continue;
      case Op::kGather:
        i.fn.gather(v(i.d), i.memory, vi64(i.a), mask(i.c), n);
        continue;
      case Op::kScatter:
        i.fn.scatter(i.memory, v(i.d), vi64(i.a), mask(i.c), n);
        continue;
      case Op::kLaneFold:
        i.fn.fold(s(i.d), v(i.a), n);
        continue;
      case Op::kLaneBound:
        QUENCH_RETURN_IF_ERROR(LaneBound(i, scalar::Add(i64(i.a), i.imm2), mask(i.b), n));
        continue;
      case Op::kGatherBound:
        QUENCH_RETURN_IF_ERROR(GatherBound(i, vi64(i.a), mask(i.b), n));
        continue;
      case Op::kLaneCheck: {
        const bool* holds = mask(i.a);
        const bool* active = mask(i.b);
        for (int64_t lane = 0; lane < n; ++lane) {
          if (!holds[lane] && (active == nullptr || active[lane])) return Fail(i, 0);
        }
        continue;
      }
    }
    if (budget < 0) {
      budget = kBudget;
      QUENCH_RETURN_IF_ERROR(context_.Check());
    }
  }
}

}  // namespace

absl::Status RunProgram(const Program& program, const std::string& name, std::span<int64_t> slots,
                        const StepContext& context) {
  return Machine(program, name, slots, context).Run();
}

}  // namespace quench::loops
