// The space that one or more blob folders may take together.
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

  // Becomes the owner of the account in `file`, for present and future followers.
  absl::Status Share(const std::filesystem::path& file);
  // Becomes a follower: the limits are the owner's, as soon as there is one; nothing is measured here. A
  // write that does not fit asks the owner for room, and waits for it at most three seconds. Called before
  // any other method, except getters of the constructor's values.
  void Follow(const std::filesystem::path& file);
  // The file that this process follows, for its children; "" if none.
  const std::filesystem::path& followed() const { return followed_; }

  // Adds the root of a store: its blobs and its unfinished files count. All roots are on the first's disk.
  void AddRoot(const std::filesystem::path& root);
  // Called before a write is refused, by one thread at a time: removes blobs that can be spared
  // until `bytes` more bytes fit in. Null: none can be spared.
  void SetMakeRoom(std::function<void(uint64_t bytes)> make_room);
  // Makes the room that followers have asked for since the last call, if any.
  void MakeRoomForFollowers();

  // Called before bytes are written. RESOURCE_EXHAUSTED, like a full disk, if they would exceed the limit
  // or leave less than the reserve on the disk.
  absl::Status Take(uint64_t bytes);
  // Gives back bytes that were taken and not stored.
  void Give(uint64_t bytes);
  // Measures the folders; returns their bytes.
  uint64_t Measure();

  // The used bytes, as far as known.
  uint64_t used();
  uint64_t max_bytes() const { return max_bytes_; }
  // The reserve; the owner's if there is an owner.
  uint64_t reserve();
  // Bytes left on the disk for blobs, without the reserve. kNoLimit if unknown.
  uint64_t FreeOnDisk();
  // Bytes by which others have used up the reserve.
  uint64_t MissingOfReserve();

 private:
  // The account as stored in the file.
  struct Account {
    uint64_t magic = 0;
    uint64_t max = kNoLimit;
    uint64_t reserve = 0;
    uint64_t used = 0;
    uint64_t taken = 0;    // in total, by all processes
    uint64_t wanted = 0;   // the largest request of a follower
    uint64_t answers = 0;  // number of times that the owner has answered
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
  Account own_;    // the account without a file
  std::vector<std::filesystem::path> roots_;
  std::chrono::steady_clock::time_point measured_{};
};

}  // namespace quench
