// The rules that our own .proto files follow beyond what protoc checks.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace quench {

// A sentence for everything in `file` (built with source info) that breaks a rule:
// - its package is its folder and ends in a version; go_package and java_package say the same, and Java gets a file for each
//   message;
// - the zero of enum `FooBar` is FOO_BAR_UNSPECIFIED;
// - at most one service; RPC `Foo` takes its own FooRequest and gives its own FooResponse, or a stream
//   of its own FooEvent, or a google.longrunning.Operation;
// - the file, its service and every RPC have a comment;
// - bytes travel by digest: files that import the Remote Execution API or have a service have no
//   `bytes` fields, but in the requests of client streams, which bring bytes into the blob store.
std::vector<std::string> FindLintProblems(const google::protobuf::FileDescriptor& file);

}  // namespace quench
