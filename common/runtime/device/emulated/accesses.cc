// The memory that a thread may access, and copies that are under way.
#include <bit>
#include <cstring>

#include "common/runtime/device/emulated/runner.h"

namespace quench::emulated {
namespace {

constexpr uint32_t kVector = 16;  // bytes of a copy and of a matrix' row

std::string Bytes(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

std::string Does(Access access, uint64_t bytes) {
  return (access == Access::kRead    ? "reads "
          : access == Access::kWrite ? "writes "
                                     : "changes ") +
         Bytes(bytes);
}

}  // namespace

bool Runner::InAllocation(uint64_t address, uint64_t bytes) {
  for (const Span& span : seen_) {
    if (span.Holds(address, bytes)) return true;
  }
  const Allocation* const allocation = memory_.Find(address, bytes);
  if (allocation == nullptr || allocation->device != launch_.device) return false;
  seen_[next_seen_++ % std::size(seen_)] = allocation->span;
  return true;
}

bool Runner::Check(const Lane& lane, const void* pointer, uint64_t bytes, Access access) {
  if (!Settle()) return false;
  if (bytes == 0) return true;
  const auto address = std::bit_cast<uint64_t>(pointer);
  if (shared_.Holds(address, bytes)) {
    return CheckShared(lane, address - shared_.begin, bytes, access);
  }
  if (InAllocation(address, bytes)) {
    if (launch_.races && access == Access::kWrite) {
      write_ = {lane.thread, {address, address + bytes}};
    }
    return true;
  }
  if (lane.fibre->stack().Holds(address, bytes)) return true;
  if (access == Access::kRead) {
    for (const Span& span : launch_.readable) {
      if (span.Holds(address, bytes)) return true;
    }
  }
  return Outside(lane, address, bytes, access);
}

bool Runner::CheckShared(const Lane& lane, uint64_t offset, uint64_t bytes, Access access) {
  const auto race = shared_shadow_.Note(static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes),
                                        lane.thread, access);
  if (!race) return true;
  return Fail(lane, CUDA_ERROR_LAUNCH_FAILED,
              std::string(access == Access::kRead ? "reads" : "writes") + " byte " +
                  std::to_string(race->byte) + " of shared memory, which thread " +
                  std::to_string(race->thread) + " has " + (race->written ? "written" : "read") +
                  " since the last barrier");
}

std::string Runner::Place(const Lane& lane, uint64_t address) const {
  constexpr uint64_t kNear = 4096;
  const std::string shared = " " + Bytes(launch_.shared_bytes) + " of shared memory";
  if (shared_.Holds(address, 1)) {
    return "at " + std::to_string(shared_.end - address) + " bytes before the end of" + shared;
  }
  if (address >= shared_.end && address - shared_.end < kNear) {
    return "at " + std::to_string(address - shared_.end) + " bytes past the end of" + shared;
  }
  if (address < shared_.begin && shared_.begin - address < kNear) {
    return "at " + std::to_string(shared_.begin - address) + " bytes before the begin of" + shared;
  }
  if (const Allocation* const allocation = memory_.Find(address, 1);
      allocation != nullptr && allocation->device != launch_.device) {
    return "in memory of device " + std::to_string(allocation->device);
  }
  if (const std::string text = memory_.Describe(address); !text.empty()) return text;
  for (const Lane& other : lanes_) {
    if (&other != &lane && other.fibre != nullptr && other.fibre->stack().Holds(address, 1)) {
      return "in the stack of thread " + std::to_string(other.thread);
    }
  }
  for (const Span& span : launch_.readable) {
    if (span.Holds(address, 1)) return "in memory that can only be read";
  }
  return address < kNear ? "at address " + std::to_string(address) : "in memory of the host";
}

bool Runner::Outside(const Lane& lane, uint64_t address, uint64_t bytes, Access access) {
  return Fail(lane, CUDA_ERROR_ILLEGAL_ADDRESS, Does(access, bytes) + " " + Place(lane, address));
}

bool Runner::CheckAtomic(const Lane& lane, const uint32_t* address) {
  if (std::bit_cast<uint64_t>(address) % sizeof(uint32_t) != 0) {
    return Fail(lane, CUDA_ERROR_ILLEGAL_ADDRESS, "atomic_min at an address that is not aligned");
  }
  return Check(lane, address, sizeof(uint32_t), Access::kAtomic);
}

// The row that a lane gives to load_matrices.
bool Runner::CheckRow(const Lane& lane) {
  const auto row = std::bit_cast<uint64_t>(lane.call.row);
  if (!shared_.Holds(row, kVector)) {
    return Fail(lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                "load_matrices of a row outside shared memory: " + Place(lane, row));
  }
  if (row % kVector != 0) {
    return Fail(lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                "load_matrices of a row that is not aligned to 16 bytes");
  }
  return CheckShared(lane, row - shared_.begin, kVector, Access::kRead);
}

bool Runner::CopyAsync(Lane* lane, void* to, const void* from, uint32_t bytes) {
  if (bytes > kVector) {
    return Fail(*lane, CUDA_ERROR_LAUNCH_FAILED, "copy_async of " + Bytes(bytes) + ", at most 16");
  }
  return Copy(lane, "copy_async", {to, from, bytes, kVector, lane->commits});
}

bool Runner::CopyPart(Lane* lane, void* to, const void* from, uint32_t bytes, bool present) {
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) {
    return Fail(*lane, CUDA_ERROR_LAUNCH_FAILED,
                "copy_part of " + Bytes(bytes) + ", which must be 1, 2, 4 or 8");
  }
  const uint32_t read = present ? bytes : 0;
  if (!Copy(lane, "copy_part", {to, from, read, bytes, lane->commits})) return false;
  constexpr uint32_t kLeastAsync = 4;
  if (bytes >= kLeastAsync) return true;
  lane->copies.pop_back();
  std::memset(to, 0, bytes);
  if (present) std::memcpy(to, from, bytes);
  return true;
}

bool Runner::Copy(Lane* lane, const std::string& name, const PendingCopy& copy) {
  const auto target = std::bit_cast<uint64_t>(copy.to);
  if (!shared_.Holds(target, copy.size)) {
    return Fail(
        *lane, CUDA_ERROR_ILLEGAL_ADDRESS,
        name + " to " + Bytes(copy.size) + " outside shared memory: " + Place(*lane, target));
  }
  const bool from_is_aligned =
      copy.bytes == 0 || std::bit_cast<uint64_t>(copy.from) % copy.size == 0;
  if (target % copy.size != 0 || !from_is_aligned) {
    return Fail(*lane, CUDA_ERROR_ILLEGAL_ADDRESS,
                name + " with an address that is not aligned to " + Bytes(copy.size));
  }
  if (!Check(*lane, copy.from, copy.bytes, Access::kRead)) return false;
  if (!Check(*lane, copy.to, copy.size, Access::kWrite)) return false;
  std::memset(copy.to, kPoison, copy.size);
  lane->copies.push_back(copy);
  return true;
}

bool Runner::Wait(Lane* lane, uint32_t pending) {
  size_t done = 0;
  for (; done < lane->copies.size(); ++done) {
    const PendingCopy& copy = lane->copies[done];
    if (copy.group + pending >= lane->commits) break;  // of a group that may be under way
    // It may have been written at any time since copy_async.
    if (!Check(*lane, copy.to, copy.size, Access::kWrite)) return false;
    std::memset(copy.to, 0, copy.size);
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
  }
  lane->copies.erase(lane->copies.begin(), lane->copies.begin() + static_cast<ptrdiff_t>(done));
  return true;
}

bool Runner::Settle() {
  if (!write_) return true;
  const Write write = *write_;
  write_.reset();
  const auto race = global_shadow_.Note(write.span.begin, write.span.end - write.span.begin,
                                        {block_, write.thread, barriers_});
  if (!race) return true;
  const Allocation* const allocation = memory_.Find(race->address, 1);
  const Span span = allocation != nullptr ? allocation->span : Span{};
  Lane writer = {};
  writer.thread = write.thread;
  writer.block = block_;
  return Fail(writer, CUDA_ERROR_LAUNCH_FAILED,
              "writes byte " + std::to_string(race->address - span.begin) +
                  " of an allocation of " + Bytes(span.end - span.begin) + ", to which thread " +
                  std::to_string(race->other.thread) + " of block " +
                  std::to_string(race->other.block) +
                  " has written another value, with no barrier between");
}

}  // namespace quench::emulated
