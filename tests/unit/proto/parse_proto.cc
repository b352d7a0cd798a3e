#include "tests/unit/proto/parse_proto.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace quench {

std::string Edited(std::string text,
                   const std::vector<std::pair<std::string, std::string>>& edits) {
  for (const auto& [from, to] : edits) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  return text;
}

const google::protobuf::FileDescriptor* ParseFile(const std::string& text,
                                                  google::protobuf::DescriptorPool& pool) {
  google::protobuf::FileDescriptorProto proto;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(text, &proto);
  const google::protobuf::FileDescriptor* file = parsed ? pool.BuildFile(proto) : nullptr;
  EXPECT_NE(file, nullptr) << text;
  return file;
}

}  // namespace quench
