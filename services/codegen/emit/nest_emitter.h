// Emits the statements of one scheduled nest. The loop whose iterations are lanes is emitted in the
// manner of M. Pharr and W. Mark, "ispc: a SPMD compiler for high-performance CPU programming"
// (2012): what does not vary over lanes stays scalar, control flow that does becomes masks.
#pragma once

#include <absl/status/status.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/loops/ranges.h"
#include "services/codegen/emit/arith.h"
#include "services/codegen/emit/device_ops.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {

// A value over the lanes of the current loop.
struct Lanes {
  enum class Shape : uint8_t {
    kUniform,  // `v`, a scalar, in every lane
    kLinear,   // v + lane * step, integers
    kVarying,  // `v` is a vector
  };
  llvm::Value* v = nullptr;
  Shape shape = Shape::kUniform;
  int64_t step = 0;
  bool uniform() const { return shape == Shape::kUniform; }
};

class NestEmitter {
 public:
  NestEmitter(ModuleState& state, const Schedule& schedule, llvm::Function* function);

  // Scratch buffers are small enough for the stack (schedule.h); otherwise the caller passes them.
  void set_stack_scratch(bool on_stack) { stack_scratch_ = on_stack; }
  absl::Status Run();
  // Messages of the checks met, by index.
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  struct Memory {
    llvm::Value* base = nullptr;
    std::vector<llvm::Value*> strides;  // in elements, of the index type
    llvm::Type* element = nullptr;      // in memory: bool is i8
    uint64_t bytes = 1;
  };
  // Element offset base + lane * step + offsets[lane].
  struct Address {
    llvm::Value* base = nullptr;
    int64_t step = 0;
    llvm::Value* symbolic_step = nullptr;
    llvm::Value* offsets = nullptr;  // vector, or null
    bool same() const { return step == 0 && symbolic_step == nullptr && offsets == nullptr; }
    bool contiguous() const { return step == 1 && symbolic_step == nullptr && offsets == nullptr; }
  };
  // An element of a row, or as many as there are lanes, in a thread's registers.
  struct Kept {
    llvm::AllocaInst* memory = nullptr;
    Lanes::Shape shape = Lanes::Shape::kUniform;
  };
  struct LocalSlot {
    llvm::AllocaInst* memory = nullptr;
    bool varying = false;
  };

  const loops::Expr& ExprAt(loops::ExprId id) const { return f_.exprs[static_cast<size_t>(id)]; }
  const loops::Stmt& StmtAt(loops::StmtId id) const { return f_.stmts[static_cast<size_t>(id)]; }

  // nest.cc: the frame of the function
  void DeclareMemory();
  llvm::Value* ScratchBase(const loops::Buffer& buffer, llvm::Value*& used);
  void EmitTasks();
  void TaskIndices(llvm::Value* task, std::span<llvm::Value* const> extents);
  bool IsTaskLoop(loops::StmtId id) const;
  llvm::BasicBlock* Block(const char* name);
  llvm::AllocaInst* Alloca(llvm::Type* type);

  // nest_stmt.cc
  void Body(std::span<const loops::StmtId> body);
  void Statement(loops::StmtId id);
  void Emit(loops::StmtId id);
  void For(loops::StmtId id);
  void UniformFor(loops::StmtId id, llvm::Value* begin, llvm::Value* end);
  // [begin, end) in blocks of `step` iterations, which `body` runs from its first to its second
  // argument: the loop's long sums (long_sums.h) start afresh in each.
  void InBlocks(const loops::Stmt& stmt, llvm::Value* begin, llvm::Value* end, int64_t step,
                const std::function<void(llvm::Value*, llvm::Value*)>& body);
  void VaryingFor(loops::StmtId id, const Lanes& begin, const Lanes& end);

  // nest_shared.cc: loops that threads of a GPU share
  bool IsShared() const { return !schedule_.shared_loops.empty(); }
  DeviceOps Device();
  llvm::Value* ThreadOfTask();  // i64
  void SyncTask();
  void SharedFor(loops::StmtId id);
  int SharedLanes(loops::StmtId id) const;
  void SharedBody(const loops::Stmt& stmt, int lanes, llvm::Value* index);
  void ShareRow(loops::StmtId id);
  void ShareSteps(loops::StmtId id);
  llvm::Value* OverLanes(loops::BinaryOp op, DataType type, llvm::Value* value, int lanes);
  llvm::Value* OverTask(loops::BinaryOp op, DataType type, llvm::Value* value);
  llvm::Value* FromLane(llvm::Value* value, int mask);
  void StoreOnce(const loops::Stmt& stmt);
  void FindExchanges();
  void FindRepeatedLoads();
  std::optional<std::string> RowKey(const loops::Expr& load) const;
  bool AppendKey(loops::ExprId id, std::string& key) const;
  llvm::AllocaInst* KeptScratch(loops::BufferId buffer, llvm::Type* type);
  std::optional<Lanes> KeptLoad(const loops::Expr& e);

  void MaskedFor(const loops::Stmt& stmt, llvm::Value* begin, llvm::Value* end);
  void While(const loops::Stmt& stmt);
  void VaryingWhile(const loops::Stmt& stmt);
  void If(const loops::Stmt& stmt);
  void VaryingIf(const loops::Stmt& stmt, llvm::Value* condition);
  void Set(const loops::Stmt& stmt);
  Lanes SetValue(const loops::Stmt& stmt);
  void Check(const loops::Stmt& stmt);
  // The body under `mask`, jumped over when no lane is active.
  void UnderMask(llvm::Value* mask, std::span<const loops::StmtId> body);
  // [begin, end) in steps of `step`, calling `body` with the index.
  void CountedLoop(llvm::Value* begin, llvm::Value* end, int64_t step, bool keep_rolled,
                   const std::function<void(llvm::Value*)>& body);
  void Branch(llvm::Value* condition, const std::function<void()>& then,
              const std::function<void()>& otherwise);

  // nest_lanes.cc: the loop whose iterations are lanes
  void LanesFor(loops::StmtId id, int lanes);
  llvm::Value* WholeVectors(loops::StmtId id, int lanes, llvm::Value* begin, llvm::Value* end,
                            bool masked);
  void VectorBody(const loops::Stmt& stmt, int lanes, llvm::Value* index, llvm::Value* mask);
  void ScalarTail(const loops::Stmt& stmt, llvm::Value* begin, llvm::Value* end);
  bool MaskedTailPays(loops::StmtId id, int lanes);
  void OpenAccumulators(const loops::Stmt& stmt, int lanes);
  void CloseAccumulators(const loops::Stmt& stmt);
  llvm::Value* Identity(loops::BinaryOp op, DataType type);
  llvm::Value* Horizontal(loops::BinaryOp op, DataType type, llvm::Value* vector);

  // nest_expr.cc
  Lanes Value(loops::ExprId id);  // memo for the current statement
  Lanes Emit(const loops::Expr& e);
  Lanes Slot(const loops::Expr& e);
  Lanes Local(const loops::Expr& e);
  Lanes Unary(const loops::Expr& e);
  Lanes Binary(const loops::Expr& e);
  std::optional<Lanes> LinearBinary(const loops::Expr& e, const Lanes& x, const Lanes& y);
  Lanes Select(const loops::Expr& e);
  Lanes Cast(const loops::Expr& e);
  void Forget() { ++epoch_; }               // values computed so far may be stale
  llvm::Value* Scalar(loops::ExprId id);    // a uniform value
  llvm::Value* Vector(const Lanes& value);  // as a vector of lanes_
  llvm::Value* Splat(llvm::Value* scalar);
  llvm::Value* LaneNumbers(llvm::Type* element);  // 0, 1, 2, ...
  llvm::Value* AndMask(llvm::Value* condition);   // condition and the current mask
  llvm::Value* AnyLane(llvm::Value* mask);

  // nest_memory.cc
  Address AddressOf(loops::BufferId buffer, std::span<const loops::ExprId> indices);
  llvm::Value* Pointer(const Memory& memory, llvm::Value* offset);
  llvm::Value* LaneOffset(const Address& address, int lane);
  llvm::Value* LanePointers(const Memory& memory, const Address& address);
  Lanes Load(const loops::Expr& e);
  Lanes LoadMemory(const loops::Expr& e);
  llvm::Value* LoadStrided(const Memory& memory, const Address& address);
  llvm::Value* Gather(const Memory& memory, const Address& address);
  void Store(const loops::Stmt& stmt);
  void Scatter(const Memory& memory, const Address& address, llvm::Value* vector);

  // nest_lookup.cc: tables of one byte
  std::optional<Lanes> LookUp(const loops::Expr& e);
  llvm::Value* PickOf16(std::span<llvm::Value* const> table, llvm::Value* indices);
  llvm::Value* PickOf64(std::span<llvm::Value* const> table, llvm::Value* indices);
  // The table's bytes by sixteens, each repeated over a whole vector register.
  const std::vector<llvm::Value*>& TableOf(loops::BufferId buffer);
  llvm::Value* ToMemory(DataType type, llvm::Value* value);
  llvm::Value* FromMemory(DataType type, llvm::Value* value);
  llvm::Type* VectorOf(llvm::Type* element) const;

  ModuleState& state_;
  const Schedule& schedule_;
  const loops::Function& f_;
  llvm::Function* function_;
  llvm::IRBuilder<> entry_;  // allocas, pointers, sizes; jumps to the body at the end
  llvm::IRBuilder<> b_;
  Arith arith_;
  llvm::IntegerType* index_type_;
  llvm::BasicBlock* failed_ = nullptr;  // returns `failure_`
  llvm::PHINode* failure_ = nullptr;

  std::vector<Memory> memory_;
  std::vector<Lanes> vars_;
  loops::Ranges ranges_;                    // of sizes and loops, whatever the run's slots are
  std::vector<LocalSlot> locals_;           // as the current loop sees them
  std::vector<llvm::AllocaInst*> scalars_;  // as code outside loops of lanes sees them
  std::map<int32_t, llvm::Value*> slots_;
  std::map<loops::BufferId, std::vector<llvm::Value*>> tables_;
  bool writes_slots_ = false;
  bool in_shared_loop_ = false;
  bool exchanges_ = false;  // stores, between threads
  int row_step_ = -1;  // of a row's loop that is being emitted; -1: none, or not its own statements
  loops::VarId shared_var_ = loops::kNone;
  std::map<loops::VarId, loops::ExprId> lets_;
  std::set<std::string> repeated_;                   // loads, as RowKey has them
  std::map<std::string, std::map<int, Kept>> kept_;  // by what it is, and the step
  bool stack_scratch_ = true;
  std::vector<std::string> messages_;

  int lanes_ = 1;
  llvm::Value* mask_ = nullptr;  // null: all lanes active
  std::vector<Lanes> memo_;
  std::vector<uint64_t> memo_epoch_;
  uint64_t epoch_ = 1;
};

}  // namespace quench::codegen
