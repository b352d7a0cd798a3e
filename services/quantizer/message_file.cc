#include "services/quantizer/message_file.h"

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/wire/wire_scan.h"

namespace quench::quantizer {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;
constexpr size_t kMaxParts = 20'000'000;  // messages and fields
constexpr int kMaxDepth = 8;

}  // namespace

absl::Status ReadMessageFile(const std::filesystem::path& path, std::string_view magic,
                             std::string_view what, google::protobuf::Message& message) {
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxBytes));
  const std::string serialised = bytes.starts_with(magic) ? bytes.substr(magic.size()) : "";
  if (!bytes.starts_with(magic) ||
      !wire::ScanMessage(serialised, *message.GetDescriptor(), kMaxParts, kMaxDepth).ok() ||
      !message.ParseFromString(serialised)) {
    return InvalidArgument("`{}` has no {}", path.string(), what);
  }
  return absl::OkStatus();
}

}  // namespace quench::quantizer
