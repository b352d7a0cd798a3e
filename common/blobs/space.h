// How much one or more blob folders may hold together.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

namespace quench {

// Bytes left free on the folder's disk for other data that must go on when blobs have filled it,
// above all a database beside them: 2 %, at most 1 GiB.
uint64_t DefaultReserve(const std::filesystem::path& folder);

// Account of the bytes in blob folders: measured by Measure and before a write is refused, and
// counted in between. Processes that write into the same folders share the account in a file there:
// one owner, which sets the limit, measures and makes room, and others that follow it. Thread-safe.
class BlobSpace {
 public:
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  // `reserve`: bytes of the disk that no write may take.
  explicit BlobSpace(uint64_t max_bytes, uint64_t reserve = 0)
      : max_bytes_(max_bytes), reserve_(reserve) {
    own_.max = max_bytes;
    own_.reserve = reserve;
  }
  ~BlobSpace();
  BlobSpace(const BlobSpace&) = delete;
  BlobSpace& operator=(const BlobSpace&) = delete;

  // As the owner of the account in `file`, for the followers there are and will be.
  absl::Status Share(const std::filesystem::path& file);
  // As a follower: the limits are the owner's, as soon as there is one; nothing is measured here. A write
  // that does not fit asks the owner for room, and waits for it three seconds at most. Before this, no
  // other method but those of the constructor's values.
  void Follow(const std::filesystem::path& file);
  // The file that this process follows, for its children; "" if none.
  const std::filesystem::path& followed() const { return followed_; }

  // The root of a store: its blobs and its unfinished files count. The first one's disk is theirs.
  void AddRoot(const std::filesystem::path& root);
  // Called before a write is refused, by one thread at a time: removes blobs that can be spared
  // until `bytes` more bytes fit in. Null: none can be spared.
  void SetMakeRoom(std::function<void(uint64_t bytes)> make_room);
  // Makes the room that followers have asked for since the last call, if any.
  void MakeRoomForFollowers();

  // Before bytes are written. RESOURCE_EXHAUSTED, as a full disk has it, if there would be more than
  // the limit, or less than the reserve left on the disk.
  absl::Status Take(uint64_t bytes);
  // Bytes that were taken and are not stored after all.
  void Give(uint64_t bytes);
  // Looks at the folders; returns what they hold.
  uint64_t Measure();

  // As far as is known.
  uint64_t used();
  uint64_t max_bytes() const { return max_bytes_; }
  // The owner's, where there is one.
  uint64_t reserve();
  // Bytes left on the disk for blobs: without the reserve. kNoLimit when unknown.
  uint64_t FreeOnDisk();
  // Bytes of the reserve that others have taken.
  uint64_t MissingOfReserve();

 private:
  // As it lies in the file.
  struct Account {
    uint64_t magic = 0;
    uint64_t max = kNoLimit;
    uint64_t reserve = 0;
    uint64_t used = 0;
    uint64_t taken = 0;    // in all, by everybody
    uint64_t wanted = 0;   // the largest of what followers ask for
    uint64_t answers = 0;  // how often the owner has answered them
    bool operator==(const Account&) const = default;
  };
  template <typename Change>
  auto With(const Change& change);
  uint64_t DiskBytesFree();
  bool TryTake(uint64_t bytes);
  bool AskForRoom(uint64_t bytes);
  absl::Status Full(uint64_t bytes);

  const uint64_t max_bytes_, reserve_;
  std::mutex making_room_;  // before mutex_
  std::function<void(uint64_t)> make_room_;
  std::chrono::steady_clock::time_point made_room_{};
  std::mutex mutex_;
  std::filesystem::path followed_;
  int file_ = -1;  // the shared account
  Account own_;    // without one
  std::vector<std::filesystem::path> roots_;
  std::chrono::steady_clock::time_point measured_{};
};

}  // namespace quench
