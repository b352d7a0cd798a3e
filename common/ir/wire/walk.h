// Messages inside messages.
#pragma once

#include <fmt/format.h>
#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <vector>

namespace quench::wire {

// Calls `visit` with every message of type T inside `message`, in field order, and its path:
// `model.file`, `blobs[2]`. Does not look into a T.
template <typename T>
void ForEachMessage(const google::protobuf::Message& message,
                    const std::function<void(const T& found, const std::string& path)>& visit,
                    const std::string& path = "") {
  using google::protobuf::FieldDescriptor;
  if (message.GetDescriptor() == T::descriptor()) {
    visit(static_cast<const T&>(message), path);
    return;
  }
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string name = path.empty() ? field->name() : path + "." + field->name();
    if (!field->is_repeated()) {
      ForEachMessage<T>(reflection.GetMessage(message, field), visit, name);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      ForEachMessage<T>(reflection.GetRepeatedMessage(message, field, i), visit,
                        fmt::format("{}[{}]", name, i));
    }
  }
}

}  // namespace quench::wire
