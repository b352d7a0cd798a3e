// Reads the wire form of a protobuf model file before protobuf does.
//
// The scanner walks the bytes of a (mapped) file against the declared messages, without allocating
// for anything the file merely claims, and writes a skeleton: the same messages without unknown
// fields and without the data of large tensors, which stay where they are in the file. Protobuf
// then parses the skeleton only, so the memory that a model of any size takes is bounded by its
// structure, not by its weights.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace quench::importer {

struct ScanLimits {
  int depth = 96;                     // nested messages; protobuf's own limit is 100
  int64_t messages = 4'000'000;       // all messages of the file
  int64_t strings = 8'000'000;        // all string and bytes fields
  int64_t scalars = 64'000'000;       // numbers kept in the skeleton
  size_t skeleton_bytes = 512 << 20;  // size of the skeleton
  size_t inline_bytes = 4096;         // tensor data of this size and more stays in the file
};

// Scans `file` as one message of type `root` (ModelProto, GraphDef, ...). In messages with a field
// `stored` of number 100001, the contents of a tensor of `inline_bytes` and more (packed numbers except
// `dims`, and single bytes fields) are replaced by `stored` entries with their place in `file`.
// Truncated fields, wrong wire types and exceeded limits are INVALID_ARGUMENT or RESOURCE_EXHAUSTED,
// with the offset.
absl::StatusOr<std::string> ScanMessage(std::span<const std::byte> file,
                                        const google::protobuf::Descriptor& root,
                                        const ScanLimits& limits = {});

}  // namespace quench::importer
