#include "common/rpc/unknown_fields.h"

#include <fmt/ranges.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <vector>

#include "common/rpc/errors.h"

namespace quench::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMostNamed = 10;

void Find(const Message& message, const std::string& prefix, std::vector<std::string>* paths) {
  const auto* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count() && paths->size() < kMostNamed; ++i)
    paths->push_back(fmt::format("{}{}", prefix, unknown.field(i).number()));
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Find(reflection->GetMessage(message, field), prefix + field->name() + ".", paths);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      Find(reflection->GetRepeatedMessage(message, field, i),
           fmt::format("{}{}[{}].", prefix, field->name(), i), paths);
    }
  }
}

}  // namespace

absl::Status CheckKnownFields(const Message& message) {
  std::vector<std::string> paths;
  Find(message, "", &paths);
  if (paths.empty()) return absl::OkStatus();
  absl::Status status =
      Error(Reason::kUnknownField,
            fmt::format("this server does not know field{} `{}`: it is older than its client",
                        paths.size() == 1 ? "" : "s", fmt::join(paths, "`, `")));
  for (const std::string& path : paths) status = WithField(status, {path, "is not known here"});
  return status;
}

}  // namespace quench::rpc
