// Events that wait to be posted to receivers, durable like the workflows that they tell of.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quench::gateway {

// A CloudEvent on its way to one receiver.
struct QueuedEvent {
  std::string id;  // unique among receivers too
  std::string url;
  std::string body;      // JSON
  int64_t first_us = 0;  // when it happened, in Unix microseconds
  int attempts = 0;
};

// Thread-safe.
class EventQueue {
 public:
  virtual ~EventQueue() = default;
  // At most `most` whose time has come, oldest first.
  virtual absl::StatusOr<std::vector<QueuedEvent>> DueEvents(int64_t now_us, int most) = 0;
  virtual void Delivered(const std::string& id) = 0;
  // Not delivered; due again at `next_us`.
  virtual void PostLater(const std::string& id, int attempts, int64_t next_us) = 0;
  // Given up.
  virtual void Dropped(const std::string& id) = 0;
};

}  // namespace quench::gateway
