// Changes to a finished library before it is delivered.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <span>
#include <string>

namespace quench::codegen {

// 32 hex digits, with or without dashes, in the form 123e4567-e89b-12d3-a456-426614174000.
absl::StatusOr<std::string> NormalUuid(const std::string& text);

struct Stamped {
  std::string uuid;
  size_t offset = 0;  // in the library, where it replaces as many bytes
  std::string header;
};

// Changes library and header to what Compile would have made with `uuid`; a library may be larger than
// memory and is not copied. `header` gives the present UUID; INVALID_ARGUMENT if the library has another
// one.
absl::StatusOr<Stamped> StampUuid(std::span<const std::byte> library,
                                  std::span<const std::byte> header, const std::string& uuid);

}  // namespace quench::codegen
