// Steps of a run that concern a GPU: launches, transfers, addresses in its memory.
#include <algorithm>
#include <limits>
#include <set>

#include "common/base/status.h"
#include "common/runtime/abi.h"
#include "services/codegen/emit/arith.h"
#include "services/codegen/emit/run_emitter.h"
#include "services/codegen/object/weight_section.h"
#include "services/codegen/plan/laid_out_sizes.h"
#include "services/codegen/plan/place.h"

namespace quench::codegen {
namespace {

using Run = AbiStruct<quench_run>;

}  // namespace

namespace {

// Weight entries that device code reads.
std::vector<int> DeviceWeights(const Program& program) {
  std::set<int> entries;
  ForEachStep(program.steps, [&](const Step& step) {
    const auto* call = step.As<CallStep>();
    if (call == nullptr || !call->on_device) return;
    entries.insert(call->packs.begin(), call->packs.end());
  });
  for (const Storage& storage : program.storages) {
    if (storage.device && storage.home == Home::kWeights) entries.insert(storage.index);
  }
  return {entries.begin(), entries.end()};
}

}  // namespace

// Entries keep their order and what lies between neighbours, so that ranges are few.
WeightRanges::WeightRanges(const Program& program, const std::vector<uint64_t>& offsets) {
  uint64_t end = 0;
  for (const int entry : DeviceWeights(program)) {
    const uint64_t begin = offsets[static_cast<size_t>(entry)];
    const uint64_t bytes = offsets[static_cast<size_t>(entry) + 1] - begin;
    if (!ranges_.empty() && end == begin) {
      ranges_.back().bytes += bytes;
    } else {
      ranges_.push_back({begin, bytes, bytes_});
    }
    places_[entry] = bytes_;
    bytes_ += bytes;
    end = begin + bytes;
  }
}

absl::Status RunEmitter::EmitLaunches() {
  absl::Status status;
  ForEachStep(program_.steps, [&](const Step& step) {
    const auto* call = step.As<CallStep>();
    if (call == nullptr || !call->on_device || !status.ok()) return;
    const size_t buffers =
        call->buffers.size() + call->packs.size() + (call->kernel.scratch_bytes.is(0) ? 0 : 1);
    absl::StatusOr<DeviceKernel> kernel = device_->Emit(call->kernel, buffers);
    status = kernel.status();
    if (!kernel.ok()) return;
    most_buffers_ = std::max(most_buffers_, buffers + kernel->slots.size() + 3);
    shared_->first_checks[call] = static_cast<int64_t>(shared_->checks.size());
    for (const std::string& message : kernel->messages)
      shared_->checks.emplace_back(message, step.node);
    shared_->launches[call] = *std::move(kernel);
  });
  return status;
}

llvm::Value* RunEmitter::DeviceField(unsigned field) {
  return LoadAbiField<quench_run>(b_, run_, static_cast<Run::Field>(field));
}

llvm::Value* RunEmitter::DeviceWeight(int entry) {
  return b_.CreateGEP(i8_, DeviceField(Run::device_weights),
                      llvm::ConstantInt::get(size_, shared_->weight_ranges->PlaceOf(entry)));
}

llvm::Value* RunEmitter::DeviceAddress(const Storage& storage) {
  const auto element = [&](Run::Field field) {
    return b_.CreateLoad(ptr_, b_.CreateConstGEP1_32(ptr_, DeviceField(field),
                                                     static_cast<unsigned>(storage.index)));
  };
  switch (storage.home) {
    case Home::kInput:
      return element(Run::device_inputs);
    case Home::kOutput:
      return element(Run::device_outputs);
    case Home::kWeights:
      return DeviceWeight(storage.index);
    case Home::kHeap:
    case Home::kArena:
      break;
  }
  QUENCH_CHECK(storage.home == Home::kArena);  // the heap is the host's (place.h)
  llvm::Value* offset = storage.offset_slot < 0
                            ? llvm::ConstantInt::get(size_, static_cast<uint64_t>(storage.offset))
                            : b_.CreateTrunc(Slot(storage.offset_slot), size_);
  return b_.CreateGEP(i8_, DeviceField(Run::device_arena), offset);
}

// Arguments are stored in `values`, and their addresses in `buffers_`.
void RunEmitter::Launch(const CallStep& call) {
  const DeviceKernel& kernel = shared_->launches.at(&call);
  unsigned count = 0;
  const auto pass = [&](llvm::Value* value) {
    llvm::Value* place = b_.CreateConstGEP1_32(i64_, values_, count);
    b_.CreateStore(value, place);
    b_.CreateStore(place, b_.CreateConstGEP1_32(ptr_, buffers_, count++));
  };
  for (const int buffer : call.buffers) pass(Address(buffer));
  for (const int entry : call.packs) pass(DeviceWeight(entry));
  if (!call.kernel.scratch_bytes.is(0)) pass(DeviceField(Run::device_scratch));
  for (const int32_t slot : kernel.slots) pass(Slot(slot));
  llvm::Value* tasks = DimValue(call.kernel.tasks);
  pass(tasks);
  if (!kernel.messages.empty()) {
    pass(b_.getInt32(static_cast<uint32_t>(shared_->first_checks.at(&call))));
    pass(DeviceField(Run::device_status));
  }
  llvm::Value* blocks = tasks;
  if (call.kernel.block_threads == 0) {
    const auto each = static_cast<uint64_t>(kernel.threads / TaskThreads(call.kernel));
    blocks = Arith(state_, b_)
                 .Quotient(/*is_signed=*/false, b_.CreateAdd(tasks, b_.getInt64(each - 1)),
                           b_.getInt64(each));
  }
  const bool any = call.kernel.block_threads > 0 && call.kernel.scratch_bytes.is(0);
  const int64_t most =
      any ? std::numeric_limits<int32_t>::max() : DeviceThreads(call.kernel) / kernel.threads;
  llvm::Value* limit = b_.getInt64(static_cast<uint64_t>(most));
  blocks = b_.CreateSelect(b_.CreateICmpULT(blocks, limit), blocks, limit);
  When(b_.CreateICmpSGT(tasks, b_.getInt64(0)), [&] {
    auto* type = llvm::FunctionType::get(i32_, {ptr_, i32_, i32_, ptr_}, false);
    LeaveWith(b_.CreateCall(
        type, host_.launch,
        {host_.host, b_.getInt32(kernel.number), b_.CreateTrunc(blocks, i32_), buffers_}));
  });
}

llvm::Value* RunEmitter::ShapeBytes(const Shape& shape) {
  if (IsFixed(shape)) return b_.getInt64(static_cast<uint64_t>(BytesAt(shape, {})));
  llvm::Value* bits = b_.getInt64(static_cast<uint64_t>(DataTypeBits(shape.dtype)));
  for (const Dim dim : shape.dims) bits = b_.CreateMul(bits, DimValue(dim));
  return b_.CreateLShr(b_.CreateAdd(bits, b_.getInt64(7)), 3);
}

void RunEmitter::Transfer(llvm::Value* to, llvm::Value* from, llvm::Value* bytes,
                          uint32_t direction) {
  auto* type = llvm::FunctionType::get(i32_, {ptr_, ptr_, ptr_, i64_, i32_}, false);
  When(b_.CreateICmpNE(bytes, b_.getInt64(0)), [&] {
    LeaveWith(
        b_.CreateCall(type, host_.transfer, {host_.host, to, from, bytes, b_.getInt32(direction)}));
  });
}

bool RunEmitter::IsOnDevice(int buffer) const {
  const int storage = program_.buffers[static_cast<size_t>(buffer)].storage;
  return program_.storages[static_cast<size_t>(storage)].device;
}

void RunEmitter::Emit(int, const TransferStep& transfer) {
  const Shape& shape = program_.buffers[static_cast<size_t>(transfer.from)].shape;
  Transfer(Address(transfer.to), Address(transfer.from), ShapeBytes(shape),
           IsOnDevice(transfer.to) ? QUENCH_TRANSFER_TO_DEVICE : QUENCH_TRANSFER_TO_HOST);
}

absl::StatusOr<llvm::Constant*> RunEmitter::DeviceCode() {
  if (device_ == nullptr) return tables_.Null();
  QUENCH_ASSIGN_OR_RETURN(const DeviceModule::Image image, device_->Finish());
  std::vector<llvm::Constant*> ranges, checks;
  for (const WeightRange& range : shared_->weight_ranges->ranges()) {
    ranges.push_back(tables_.Struct<quench_device_range>(
        {tables_.I64(static_cast<int64_t>(range.offset)),
         tables_.I64(static_cast<int64_t>(range.bytes)),
         tables_.I64(static_cast<int64_t>(range.device_offset))}));
  }
  for (const auto& [message, node] : shared_->checks) {
    checks.push_back(tables_.Struct<quench_device_check>(
        {tables_.Text(message), tables_.I32(node), tables_.I32(0)}));
  }
  const auto sides = [&](const std::vector<uint32_t>& list, const char* name) {
    std::vector<llvm::Constant*> values;
    for (const uint32_t side : list) values.push_back(tables_.I32(side));
    return tables_.Array(values, name);
  };
  const auto count = [&](const auto& list) {
    return tables_.I32(static_cast<int64_t>(list.size()));
  };
  llvm::Constant* weights =
      state_.module->getOrInsertGlobal(state_.link_prefix + kWeightsSymbol, i8_);
  llvm::cast<llvm::GlobalVariable>(weights)->setVisibility(llvm::GlobalValue::HiddenVisibility);
  return tables_.Address(
      tables_.Sized<quench_device_code>(
          {count(image.kernels), count(ranges), count(checks), tables_.Text(device_->arch()),
           image.address, tables_.I64(image.bytes), tables_.Array(image.kernels, "device_kernels"),
           weights, tables_.Array(ranges, "device_ranges"),
           tables_.I64(static_cast<int64_t>(shared_->weight_ranges->bytes())),
           tables_.Array(checks, "device_checks"), sides(program_.input_sides, "input_sides"),
           sides(program_.output_sides, "output_sides")}),
      "device_code");
}

}  // namespace quench::codegen
