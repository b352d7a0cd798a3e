#include "services/codegen/options_proto.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::codegen {
namespace {

// Its own messages beside ours of the same names.
namespace pb = ::quench::codegen::v1;

using rpc::FieldError;

// A number that the field's type has no name for.
template <typename Enum>
absl::Status NoValue(const char* field, Enum number, const google::protobuf::EnumDescriptor& type) {
  return FieldError(std::string("options.") + field,
                    fmt::format("{} is not a value of {}", int{number}, type.full_name()));
}

// Builds with taps show their values, and others check them.
absl::Status TakeTaps(const pb::CompileOptions& message, CompileOptions& options) {
  if (!pb::TapValues_IsValid(message.tap_values()))
    return NoValue("tap_values", message.tap_values(), *pb::TapValues_descriptor());
  if (message.tap_values() != pb::TAP_VALUES_UNSPECIFIED && !message.taps())
    return FieldError("options.tap_values", "given without `taps`, which it is about");
  if (!message.taps()) return absl::OkStatus();
  if (message.check() == pb::CHECK_FULL)
    return FieldError("options.check", "full, and builds with `taps` are not checked");
  options.check = CheckMode::kNo;
  options.taps =
      message.tap_values() == pb::TAP_VALUES_RUNNING_CODE ? Taps::kRunningCode : Taps::kModelValues;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompileOptions> FromProto(const pb::CompileOptions& message) {
  CompileOptions options;
#define QUENCH_SWITCH(member, field, ...) options.member = !message.field();
#define QUENCH_CONSENT(member, ...) options.member = message.member();
#define QUENCH_NUMBER(type, member, default, low, high, field, ...) \
  if (message.has_##field()) options.member = message.field();
#define QUENCH_TEXT(member, field, ...) options.member = message.field();
#define QUENCH_JSON(member, field, ...) options.member = message.field();
#define QUENCH_NAMES(member, field, ...) \
  options.member = {message.field().begin(), message.field().end()};
  // A choice has a field of its name.
#define QUENCH_CHOICE(type, member, ...)                                     \
  if (const auto* given = message.GetDescriptor()->FindFieldByName(#member); \
      given->enum_type()->FindValueByNumber(message.member()) == nullptr)    \
    return NoValue(#member, message.member(), *given->enum_type());
#define QUENCH_CHOICE_VALUE(member, value, name, enumerator, uuid) \
  if (message.member() == pb::enumerator) options.member = value;
#include "services/codegen/options/options.def"
#define QUENCH_ONLY_WITH(member, other, value)                               \
  if (message.has_##member() && options.other != (value))                    \
    return FieldError("options." #member, "given without " #other " " #value \
                                          ", which it is "                   \
                                          "about");
#include "services/codegen/options/options.def"
  QUENCH_RETURN_IF_ERROR(TakeTaps(message, options));
  return options;
}

pb::CompileOptions ToProto(const CompileOptions& options) {
  pb::CompileOptions message;
#define QUENCH_SWITCH(member, field, ...) message.set_##field(!options.member);
#define QUENCH_CONSENT(member, ...) message.set_##member(options.member);
#define QUENCH_NUMBER(type, member, default, low, high, field, ...) \
  message.set_##field(options.member);
#define QUENCH_TEXT(member, field, ...) message.set_##field(options.member);
#define QUENCH_JSON(member, field, ...) message.set_##field(options.member);
#define QUENCH_NAMES(member, field, ...) \
  message.mutable_##field()->Assign(options.member.begin(), options.member.end());
#include "services/codegen/options/options.def"
  // The first enumerator of a value stands for it: CHECK_UNSPECIFIED, as from clients that say nothing.
#define QUENCH_CHOICE(type, member, ...) bool member##_set = false;
#define QUENCH_CHOICE_VALUE(member, value, name, enumerator, uuid) \
  if (!member##_set && options.member == value) {                  \
    message.set_##member(pb::enumerator);                          \
    member##_set = true;                                           \
  }
#define QUENCH_ONLY_WITH(member, other, value) \
  if (options.other != (value)) message.clear_##member();
#include "services/codegen/options/options.def"
  message.set_taps(options.taps != Taps::kNone);
  if (options.taps == Taps::kRunningCode) message.set_tap_values(pb::TAP_VALUES_RUNNING_CODE);
  if (message.taps()) message.clear_check();  // there is none
  return message;
}

}  // namespace quench::codegen
