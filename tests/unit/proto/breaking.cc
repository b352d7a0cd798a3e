#include "tests/unit/proto/breaking.h"

#include <algorithm>
#include <functional>
#include <map>

namespace quench {
namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::MethodDescriptorProto;
using google::protobuf::ServiceDescriptorProto;

using Problems = std::vector<std::string>;

void AddIf(bool broken, const std::string& where, const std::string& what, Problems& problems) {
  if (broken) problems.push_back(where + ": " + what);
}

// Calls `compare` for what both lists have under one name; what only `before` has is a problem.
template <typename T>
void CompareByName(const google::protobuf::RepeatedPtrField<T>& before,
                   const google::protobuf::RepeatedPtrField<T>& after, const std::string& kind,
                   const std::string& prefix, Problems& problems,
                   const std::function<void(const T&, const T&, const std::string&)>& compare) {
  std::map<std::string, const T*> now;
  for (const T& entry : after) now[entry.name()] = &entry;
  for (const T& entry : before) {
    const std::string name = prefix + entry.name();
    const auto found = now.find(entry.name());
    if (found == now.end()) {
      problems.push_back(kind + " `" + name + "`: deleted");
    } else {
      compare(entry, *found->second, name);
    }
  }
}

// The oneof that a field is in, "" if none. `optional` makes one of its own that nobody sees.
std::string OneofOf(const DescriptorProto& message, const FieldDescriptorProto& field) {
  if (!field.has_oneof_index() || field.proto3_optional()) return "";
  return message.oneof_decl(field.oneof_index()).name();
}

std::string TypeOf(const FieldDescriptorProto& field) {
  if (!field.type_name().empty()) return field.type_name();
  return FieldDescriptorProto::Type_Name(field.type());
}

void CompareFields(const DescriptorProto& before, const DescriptorProto& after,
                   const std::string& message, Problems& problems) {
  std::map<int, const FieldDescriptorProto*> now;
  for (const FieldDescriptorProto& field : after.field()) now[field.number()] = &field;
  for (const FieldDescriptorProto& old : before.field()) {
    const std::string where =
        "field " + std::to_string(old.number()) + " `" + message + "." + old.name() + "`";
    const auto found = now.find(old.number());
    if (found == now.end()) {
      problems.push_back(where + ": deleted");
      continue;
    }
    const FieldDescriptorProto& field = *found->second;
    AddIf(field.name() != old.name(), where, "renamed to `" + field.name() + "`", problems);
    AddIf(field.json_name() != old.json_name(), where, "JSON name changed", problems);
    AddIf(TypeOf(field) != TypeOf(old), where,
          "type changed from " + TypeOf(old) + " to " + TypeOf(field), problems);
    AddIf(field.label() != old.label() || field.proto3_optional() != old.proto3_optional(), where,
          "label changed", problems);
    AddIf(OneofOf(after, field) != OneofOf(before, old), where,
          "moved from oneof `" + OneofOf(before, old) + "` to `" + OneofOf(after, field) + "`",
          problems);
  }
}

template <typename T>  // of messages and of enums
void CompareReserved(const T& before, const T& after, const std::string& where,
                     Problems& problems) {
  for (const auto& old : before.reserved_range()) {
    const bool kept = std::any_of(after.reserved_range().begin(), after.reserved_range().end(),
                                  [&](const auto& range) {
                                    return range.start() <= old.start() && range.end() >= old.end();
                                  });
    AddIf(!kept, where, "reserved numbers from " + std::to_string(old.start()) + " given free",
          problems);
  }
  for (const std::string& old : before.reserved_name()) {
    const auto& names = after.reserved_name();
    AddIf(std::find(names.begin(), names.end(), old) == names.end(), where,
          "reserved name `" + old + "` given free", problems);
  }
}

void CompareEnums(const EnumDescriptorProto& before, const EnumDescriptorProto& after,
                  const std::string& name, Problems& problems) {
  std::map<std::string, int> now;
  for (const auto& value : after.value()) now[value.name()] = value.number();
  for (const auto& old : before.value()) {
    const std::string where = "value `" + name + "." + old.name() + "`";
    const auto found = now.find(old.name());
    AddIf(found == now.end(), where, "deleted", problems);
    AddIf(found != now.end() && found->second != old.number(), where, "number changed", problems);
  }
  CompareReserved(before, after, "enum `" + name + "`", problems);
}

void CompareMessages(const DescriptorProto& before, const DescriptorProto& after,
                     const std::string& name, Problems& problems) {
  CompareFields(before, after, name, problems);
  CompareReserved(before, after, "message `" + name + "`", problems);
  CompareByName<DescriptorProto>(
      before.nested_type(), after.nested_type(), "message", name + ".", problems,
      [&](const auto& a, const auto& b, const auto& n) { CompareMessages(a, b, n, problems); });
  CompareByName<EnumDescriptorProto>(
      before.enum_type(), after.enum_type(), "enum", name + ".", problems,
      [&](const auto& a, const auto& b, const auto& n) { CompareEnums(a, b, n, problems); });
}

void CompareMethods(const MethodDescriptorProto& before, const MethodDescriptorProto& after,
                    const std::string& name, Problems& problems) {
  const std::string where = "RPC `" + name + "`";
  AddIf(before.input_type() != after.input_type(), where,
        "request changed to " + after.input_type(), problems);
  AddIf(before.output_type() != after.output_type(), where,
        "response changed to " + after.output_type(), problems);
  AddIf(before.client_streaming() != after.client_streaming(), where,
        "streaming of requests changed", problems);
  AddIf(before.server_streaming() != after.server_streaming(), where,
        "streaming of responses changed", problems);
}

void CompareFiles(const FileDescriptorProto& before, const FileDescriptorProto& after,
                  const std::string& name, Problems& problems) {
  const std::string where = "file `" + name + "`";
  AddIf(before.syntax() != after.syntax(), where, "syntax changed", problems);
  if (before.package() != after.package()) {
    problems.push_back(where + ": package changed from " + before.package() + " to " +
                       after.package());
    return;  // with it, every name in the file
  }
  const std::string prefix = before.package() + ".";
  CompareByName<DescriptorProto>(
      before.message_type(), after.message_type(), "message", prefix, problems,
      [&](const auto& a, const auto& b, const auto& n) { CompareMessages(a, b, n, problems); });
  CompareByName<EnumDescriptorProto>(
      before.enum_type(), after.enum_type(), "enum", prefix, problems,
      [&](const auto& a, const auto& b, const auto& n) { CompareEnums(a, b, n, problems); });
  CompareByName<ServiceDescriptorProto>(
      before.service(), after.service(), "service", prefix, problems,
      [&](const auto& a, const auto& b, const std::string& service) {
        CompareByName<MethodDescriptorProto>(a.method(), b.method(), "RPC", service + ".", problems,
                                             [&](const auto& x, const auto& y, const auto& n) {
                                               CompareMethods(x, y, n, problems);
                                             });
      });
}

// The file with what it imports publicly, which who imports it sees as its own.
FileDescriptorProto WithPublicImports(const FileDescriptorProto& file,
                                      const FileDescriptorSet& all) {
  FileDescriptorProto whole = file;
  for (const int index : file.public_dependency()) {
    for (const FileDescriptorProto& each : all.file()) {
      if (each.name() != file.dependency(index) || each.package() != file.package()) continue;
      whole.mutable_message_type()->MergeFrom(each.message_type());
      whole.mutable_enum_type()->MergeFrom(each.enum_type());
    }
  }
  return whole;
}

}  // namespace

std::vector<std::string> FindBreakingChanges(const FileDescriptorSet& before,
                                             const FileDescriptorSet& after) {
  Problems problems;
  CompareByName<FileDescriptorProto>(before.file(), after.file(), "file", "", problems,
                                     [&](const auto& a, const auto& b, const auto& n) {
                                       CompareFiles(a, WithPublicImports(b, after), n, problems);
                                     });
  return problems;
}

}  // namespace quench
