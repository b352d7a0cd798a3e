#include "tests/unit/proto/lint.h"

#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <cctype>

namespace quench {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::SourceLocation;

using Problems = std::vector<std::string>;

// FooBar -> FOO_BAR
std::string UpperSnake(const std::string& name) {
  std::string result;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (i > 0 && std::isupper(c)) result += '_';
    result += static_cast<char>(std::toupper(c));
  }
  return result;
}

std::string SlashesForDots(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

bool HasComment(const SourceLocation& location) {
  return !location.leading_comments.empty() || !location.leading_detached_comments.empty();
}

template <typename T>  // service or method
void CheckComment(const T& element, Problems& problems) {
  SourceLocation location;
  if (element.GetSourceLocation(&location) && HasComment(location)) return;
  problems.push_back("`" + element.full_name() + "` has no comment");
}

void CheckFile(const FileDescriptor& file, Problems& problems) {
  std::string folder = file.name().substr(0, file.name().rfind('/'));
  std::replace(folder.begin(), folder.end(), '/', '.');
  if (folder != file.package())
    problems.push_back("package is `" + file.package() + "`, the folder `" + folder + "`");
  const std::string last = file.package().substr(file.package().rfind('.') + 1);
  if (last.size() < 2 || last[0] != 'v' || !std::isdigit(static_cast<unsigned char>(last[1])))
    problems.push_back("package `" + file.package() + "` ends in no version");
  if (file.service_count() > 1) problems.push_back("more than one service");
  SourceLocation location;
  // 12 is the field number of FileDescriptorProto.syntax, the first statement of a file.
  if (!file.GetSourceLocation({12}, &location) || !HasComment(location))
    problems.push_back("the file has no comment");
  // Where generated code goes: users of Go and Java need no option of their own for each file.
  const auto& options = file.options();
  if (options.go_package().substr(0, options.go_package().find(';')) !=
      SlashesForDots(file.package()))
    problems.push_back("go_package is `" + options.go_package() + "`, not the package's path");
  if (options.java_package() != file.package() || !options.java_multiple_files())
    problems.push_back("java_package is not the package, with java_multiple_files");
}

void CheckEnum(const EnumDescriptor& type, Problems& problems) {
  const std::string zero = UpperSnake(type.name()) + "_UNSPECIFIED";
  if (type.value(0)->name() != zero || type.value(0)->number() != 0)
    problems.push_back("the first value of enum `" + type.full_name() + "` is not " + zero);
}

void CheckMessage(const Descriptor& message, bool bytes_by_digest, Problems& problems) {
  for (int i = 0; i < message.enum_type_count(); ++i) CheckEnum(*message.enum_type(i), problems);
  for (int i = 0; i < message.nested_type_count(); ++i)
    CheckMessage(*message.nested_type(i), bytes_by_digest, problems);
  for (int i = 0; bytes_by_digest && i < message.field_count(); ++i) {
    if (message.field(i)->type() == FieldDescriptor::TYPE_BYTES)
      problems.push_back("`" + message.field(i)->full_name() + "` holds bytes, not a digest");
  }
}

void CheckMethod(const MethodDescriptor& method, Problems& problems) {
  CheckComment(method, problems);
  const std::string base = method.file()->package() + "." + method.name();
  const std::string& input = method.input_type()->full_name();
  if (input != base + "Request")
    problems.push_back("`" + method.full_name() + "` takes `" + input + "`");
  const std::string& output = method.output_type()->full_name();
  const bool operation = output == "google.longrunning.Operation" && !method.server_streaming();
  if (!operation && output != base + (method.server_streaming() ? "Event" : "Response"))
    problems.push_back("`" + method.full_name() + "` gives `" + output + "`");
}

// Whether it is what a client stream is made of.
bool IsStreamed(const Descriptor& message) {
  const FileDescriptor& file = *message.file();
  for (int i = 0; i < file.service_count(); ++i) {
    for (int k = 0; k < file.service(i)->method_count(); ++k) {
      const MethodDescriptor& method = *file.service(i)->method(k);
      if (method.client_streaming() && method.input_type() == &message) return true;
    }
  }
  return false;
}

bool BytesByDigest(const FileDescriptor& file) {
  for (int i = 0; i < file.dependency_count(); ++i) {
    if (file.dependency(i)->package() == "build.bazel.remote.execution.v2") return true;
  }
  return file.service_count() > 0;
}

}  // namespace

std::vector<std::string> FindLintProblems(const FileDescriptor& file) {
  Problems problems;
  CheckFile(file, problems);
  for (int i = 0; i < file.enum_type_count(); ++i) CheckEnum(*file.enum_type(i), problems);
  for (int i = 0; i < file.message_type_count(); ++i) {
    const Descriptor& message = *file.message_type(i);
    CheckMessage(message, BytesByDigest(file) && !IsStreamed(message), problems);
  }
  for (int i = 0; i < file.service_count(); ++i) {
    const ServiceDescriptor& service = *file.service(i);
    CheckComment(service, problems);
    for (int k = 0; k < service.method_count(); ++k) CheckMethod(*service.method(k), problems);
  }
  for (std::string& problem : problems) problem = file.name() + ": " + problem;
  return problems;
}

}  // namespace quench
