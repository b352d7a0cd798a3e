// Descriptors for tests.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <utility>
#include <vector>

namespace quench {

// Replaces the first `from` by `to`, edit after edit; one that is not there fails the test.
std::string Edited(std::string text, const std::vector<std::pair<std::string, std::string>>& edits);

// Builds a FileDescriptorProto in protobuf's text form; what is not legal fails the test and gives null.
const google::protobuf::FileDescriptor* ParseFile(const std::string& text,
                                                  google::protobuf::DescriptorPool& pool);

}  // namespace quench
