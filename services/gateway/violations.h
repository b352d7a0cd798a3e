// The wrong fields of a request, to be reported all at once.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "common/rpc/errors.h"

namespace quench::gateway {

class Violations {
 public:
  void Add(std::string field, std::string description) {
    if (violations_.size() < kMost) {
      violations_.push_back({std::move(field), std::move(description)});
    }
    ++count_;
  }
  bool empty() const { return count_ == 0; }

  // OK if there is none, else INVALID_ARGUMENT with BadRequest.
  absl::Status Finish() const;

 private:
  static constexpr size_t kMost = 100;  // kept; trailers have room for fewer
  size_t count_ = 0;
  std::vector<rpc::FieldViolation> violations_;
};

}  // namespace quench::gateway
