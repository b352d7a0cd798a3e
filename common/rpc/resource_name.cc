#include "common/rpc/resource_name.h"

#include <charconv>
#include <limits>

#include "common/base/status.h"
#include "common/blobs/digest.h"

namespace quench::rpc {
namespace {

constexpr size_t kLongest = 1024;

// For messages: names come from anywhere.
std::string Shown(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 160)) shown += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > 160 ? shown + " ..." : shown;
}

std::vector<std::string> Segments(const std::string& text) {
  std::vector<std::string> segments(1);
  for (const char c : text) {
    if (c == '/') {
      segments.emplace_back();
    } else {
      segments.back() += c;
    }
  }
  return segments;
}

bool IsUuid(const std::string& text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f') ||
                     (text[i] >= 'A' && text[i] <= 'F');
    if (dash ? text[i] != '-' : !hex) return false;
  }
  return true;
}

// As many digits as the number has: a blob has one name.
bool ParseSize(const std::string& text, uint64_t* size) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *size);
  return error == std::errc() && rest == end && (text[0] != '0' || text.size() == 1) &&
         *size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

bool IsOtherDigestFunction(const std::string& text) {
  static const std::set<std::string> kNames = {
      "sha1", "md5", "vso", "sha384", "sha512", "murmur3", "sha256tree", "blake3", "gitsha1"};
  return kNames.contains(text);
}

// Reads a name from its first segment on.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text), segments_(Segments(text)) {}

  absl::StatusOr<ResourceName> Read(bool is_upload);

 private:
  const std::string* Next() { return at_ < segments_.size() ? &segments_[at_++] : nullptr; }
  absl::Status Instance();
  absl::Status Blob();
  template <typename... Args>
  absl::Status Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument("resource name `{}`: {}", Shown(text_),
                           fmt::format(format, std::forward<Args>(args)...));
  }

  const std::string& text_;
  std::vector<std::string> segments_;
  size_t at_ = 0;
  ResourceName name_;
};

absl::Status Reader::Instance() {
  // No segment of an instance's name is one of these, says REAPI.
  static const std::set<std::string> kReserved = {"blobs",           "uploads",    "actions",
                                                  "actionResults",   "operations", "capabilities",
                                                  "compressed-blobs"};
  for (; at_ < segments_.size() && !kReserved.contains(segments_[at_]); ++at_) {
    if (segments_[at_].empty()) return Bad("a segment is empty");
    if (at_ > 0) name_.instance += '/';
    name_.instance += segments_[at_];
  }
  return absl::OkStatus();
}

absl::Status Reader::Blob() {
  const std::string* segment = Next();
  if (segment != nullptr && *segment == "compressed-blobs") {
    return Unsupported("resource name `{}`: blobs are not compressed here, use `blobs/`",
                       Shown(text_));
  }
  if (segment == nullptr || *segment != "blobs") return Bad("`blobs/` is missing");
  segment = Next();
  if (segment != nullptr && IsOtherDigestFunction(*segment)) {
    return Unsupported("resource name `{}`: digests of `{}` are not known here, only of sha256",
                       Shown(text_), *segment);
  }
  if (segment != nullptr && *segment == "sha256") segment = Next();
  if (segment == nullptr || !IsDigest(*segment)) {
    return Bad("the hash must have 64 lower-case hex characters");
  }
  name_.blob.hash = *segment;
  segment = Next();
  if (segment == nullptr || !ParseSize(*segment, &name_.blob.size)) {
    return Bad("the size must be a number of bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<ResourceName> Reader::Read(bool is_upload) {
  if (text_.size() > kLongest) {
    return InvalidArgument("a resource name of {} bytes, at most {} are read", text_.size(),
                           kLongest);
  }
  QUENCH_RETURN_IF_ERROR(Instance());
  if (is_upload) {
    const std::string* segment = Next();
    if (segment == nullptr || *segment != "uploads") return Bad("`uploads/` is missing");
    segment = Next();
    if (segment == nullptr || !IsUuid(*segment)) return Bad("`uploads/` is followed by a UUID");
    name_.upload_id = *segment;
  }
  QUENCH_RETURN_IF_ERROR(Blob());
  if (!is_upload && at_ < segments_.size()) return Bad("something follows the size");
  return std::move(name_);
}

}  // namespace

std::string FormatResourceName(const ResourceName& name) {
  const std::string instance = name.instance.empty() ? "" : name.instance + "/";
  const std::string upload = name.upload_id.empty() ? "" : "uploads/" + name.upload_id + "/";
  return fmt::format("{}{}blobs/{}/{}", instance, upload, name.blob.hash, name.blob.size);
}

absl::StatusOr<ResourceName> ParseReadName(const std::string& text) {
  return Reader(text).Read(false);
}

absl::StatusOr<ResourceName> ParseWriteName(const std::string& text) {
  return Reader(text).Read(true);
}

}  // namespace quench::rpc
