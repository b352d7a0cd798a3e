#include "common/runtime/device/emulated/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>

namespace quench::emulated {
namespace {

constexpr uint64_t kRangeBytes = uint64_t{64} << 30;
constexpr uint64_t kAlignment = 256;  // of allocations, as of CUDA's
constexpr size_t kFreedKept = 64;

void* Pointer(uint64_t address) { return std::bit_cast<void*>(address); }

}  // namespace

bool Memory::Reserve() {
  if (range_.end != 0) return true;
  void* const range =
      mmap(nullptr, kRangeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return false;
  page_ = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  range_.begin = std::bit_cast<uint64_t>(range);
  range_.end = range_.begin + kRangeBytes;
  range_.begin += page_;  // stays inaccessible
  cursor_ = range_.begin;
  return true;
}

uint64_t Memory::FindGap(uint64_t bytes) const {
  for (const uint64_t from : {cursor_, range_.begin}) {
    uint64_t gap = from;
    for (auto next = regions_.lower_bound(from); next != regions_.end(); ++next) {
      if (next->first - gap >= bytes) return gap;
      gap = next->second.span.end;
    }
    if (range_.end - gap >= bytes) return gap;
  }
  return 0;
}

uint64_t Memory::Allocate(uint64_t bytes, int device) {
  if (bytes == 0 || bytes > kRangeBytes) return 0;
  const uint64_t data_bytes = RoundUp(bytes, page_);
  const uint64_t begin = FindGap(data_bytes + page_);
  if (begin == 0) return 0;
  const uint64_t data_end = begin + data_bytes;
  if (mprotect(Pointer(begin), data_bytes, PROT_READ | PROT_WRITE) != 0) return 0;
  std::memset(Pointer(begin), kPoison, data_bytes);
  const uint64_t address = (data_end - RoundUp(bytes, kEndAlignment)) / kAlignment * kAlignment;
  regions_[begin] = {{begin, data_end + page_}, {{address, address + bytes}, device}};
  cursor_ = data_end + page_;
  live_bytes_ += bytes;
  std::erase_if(freed_,
                [&](const Span& freed) { return freed.begin < cursor_ && freed.end > begin; });
  return address;
}

// The last region that begins at or before an address, or end().
Memory::Regions::const_iterator Memory::RegionBefore(uint64_t address) const {
  auto region = regions_.upper_bound(address);
  return region == regions_.begin() ? regions_.end() : --region;
}

Memory::Regions::iterator Memory::Release(Regions::iterator region) {
  const Span& span = region->second.span;
  const Span& freed = region->second.allocation.span;
  void* const data = Pointer(span.begin);
  madvise(data, span.end - page_ - span.begin, MADV_DONTNEED);
  mprotect(data, span.end - page_ - span.begin, PROT_NONE);
  live_bytes_ -= freed.end - freed.begin;
  freed_.push_front(freed);
  if (freed_.size() > kFreedKept) freed_.pop_back();
  return regions_.erase(region);
}

bool Memory::Free(uint64_t address) {
  const auto found = RegionBefore(address);
  if (found == regions_.end() || found->second.allocation.span.begin != address) return false;
  Release(regions_.find(found->first));
  return true;
}

uint64_t Memory::FreeAll(int device) {
  const uint64_t before = live_bytes_;
  for (auto region = regions_.begin(); region != regions_.end();) {
    region = region->second.allocation.device == device ? Release(region) : std::next(region);
  }
  return before - live_bytes_;
}

const Allocation* Memory::Find(uint64_t address, uint64_t bytes) const {
  const auto region = RegionBefore(address);
  if (region == regions_.end()) return nullptr;
  const Allocation& allocation = region->second.allocation;
  return allocation.span.Holds(address, bytes) ? &allocation : nullptr;
}

std::string Memory::Describe(uint64_t address) const {
  if (address < range_.begin || address >= range_.end) return "";
  for (const Span& freed : freed_) {
    if (freed.Holds(address, 1)) {
      return "at byte " + std::to_string(address - freed.begin) + " of an allocation of " +
             std::to_string(freed.end - freed.begin) + " bytes that has been freed";
    }
  }
  // The nearest of the allocations around the address.
  std::string text = "in device memory that is in no allocation";
  uint64_t nearest = UINT64_MAX;
  const auto consider = [&](const Regions::const_iterator& region) {
    if (region == regions_.end()) return;
    const Span& span = region->second.allocation.span;
    const bool before = address < span.begin, past = address >= span.end;
    const uint64_t distance = before ? span.begin - address
                              : past ? address - span.end
                                     : span.end - address;
    if (distance >= nearest) return;
    nearest = distance;
    text = "at " + std::to_string(distance) +
           (before ? " bytes before the begin of"
            : past ? " bytes past the end of"
                   : " bytes before the end of") +
           " an allocation of " + std::to_string(span.end - span.begin) + " bytes";
  };
  consider(RegionBefore(address));
  consider(regions_.upper_bound(address));
  return text;
}

}  // namespace quench::emulated
