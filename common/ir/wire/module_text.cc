#include "common/ir/wire/module_text.h"

#include <absl/strings/escaping.h>

#include <algorithm>
#include <charconv>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/quoting.h"
#include "common/ir/text.h"

namespace quench {
namespace {

constexpr std::string_view kWeights = "weights ";
constexpr std::string_view kFile = "file ";
constexpr size_t kBytesPerLine = 72;  // 96 characters
constexpr size_t kMaxLine = 4096;
constexpr size_t kBuffer = size_t{1} << 20;

// The next line of a text, without its end.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

absl::Status ErrorAt(int64_t line, const std::string& problem) {
  return InvalidArgument("{}:1: {}", line, problem);
}

// `"DIGEST" SIZE`
absl::StatusOr<BlobId> ParseHead(std::string_view head, int64_t line) {
  const size_t quote = std::min(head.find('"', 1), head.size());
  BlobId id;
  if (head.starts_with('"')) id.hash = head.substr(1, quote - 1);
  std::string_view size = head.substr(std::min(quote + 1, head.size()));
  while (size.starts_with(' ')) size.remove_prefix(1);
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), id.size);
  if (!IsDigest(id.hash) || error != std::errc() || end != size.data() + size.size()) {
    return ErrorAt(line, "`weights \"DIGEST\" SIZE` or `weights file \"NAME\"` was expected");
  }
  return id;
}

// Lines of base64 up to the next `weights`, decoded into `writer`; null: they are passed over.
absl::Status ReadLines(std::string_view& text, int64_t& line, BlobWriter* writer) {
  std::string buffer, decoded;
  const auto flush = [&]() -> absl::Status {
    QUENCH_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(buffer.data(), buffer.size()))));
    buffer.clear();
    return absl::OkStatus();
  };
  while (!text.empty() && !text.starts_with(kWeights)) {
    const std::string_view digits = TakeLine(text);
    if (writer != nullptr) {
      if (digits.size() > kMaxLine ||
          !absl::Base64Unescape({digits.data(), digits.size()}, &decoded))
        return ErrorAt(line, "a line of base64 was expected");
      buffer += decoded;
      if (buffer.size() >= kBuffer) QUENCH_RETURN_IF_ERROR(flush());
    }
    ++line;
  }
  return writer != nullptr && !buffer.empty() ? flush() : absl::OkStatus();
}

}  // namespace

absl::Status AppendWeights(const SpanBlob& blob, AtomicFile& file) {
  std::string text = fmt::format("weights {} {}\n", Quote(blob.digest), blob.size);
  std::string line;  // bytes of the line that is not full yet
  const auto encode = [&] {
    text += absl::Base64Escape(line) + "\n";
    line.clear();
  };
  const auto append = [&]() -> absl::Status {
    QUENCH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text.data(), text.size()))));
    text.clear();
    return absl::OkStatus();
  };
  for (std::span<const std::byte> piece : blob.pieces) {
    while (!piece.empty()) {
      const size_t count = std::min(piece.size(), kBytesPerLine - line.size());
      line.append(reinterpret_cast<const char*>(piece.data()), count);
      piece = piece.subspan(count);
      if (line.size() == kBytesPerLine) encode();
      if (text.size() >= kBuffer) QUENCH_RETURN_IF_ERROR(append());
    }
  }
  if (!line.empty()) encode();
  return append();
}

std::string WeightsFileLine(const std::string& name) {
  return fmt::format("weights file {}\n", Quote(name));
}

absl::StatusOr<ModuleText> SplitModuleText(std::string_view text) {
  const size_t found = text.find("\nweights ");
  const size_t end = found == std::string_view::npos ? text.size() : found + 1;
  if (end > kMaxGraphText) {
    return absl::ResourceExhaustedError(fmt::format(
        "the text has {} bytes without weights, at most {} are read", end, kMaxGraphText));
  }
  ModuleText split;
  split.module = text.substr(0, end);
  split.weights = text.substr(end);
  split.first_line = 1 + std::count(split.module.begin(), split.module.end(), '\n');
  std::string_view rest = split.weights;
  const std::string_view line = TakeLine(rest);
  if (!line.starts_with(std::string(kWeights) + std::string(kFile))) return split;
  const absl::StatusOr<std::string> name = Unquote(line.substr(kWeights.size() + kFile.size()));
  if (!name.ok()) return ErrorAt(split.first_line, MessageOf(name.status()));
  if (name->empty() || rest.find_first_not_of(" \t\r\n") != std::string_view::npos)
    return ErrorAt(split.first_line, "a file with weights has a name, and nothing comes after it");
  split.weights_file = *name;
  return split;
}

absl::StatusOr<std::vector<std::shared_ptr<const FileMapping>>> StoreWeights(const ModuleText& text,
                                                                             BlobStore& store) {
  std::vector<std::shared_ptr<const FileMapping>> held;
  std::string_view rest = text.weights;
  int64_t line = text.first_line;
  while (!rest.empty()) {
    const int64_t at = line++;
    QUENCH_ASSIGN_OR_RETURN(const BlobId id, ParseHead(TakeLine(rest).substr(kWeights.size()), at));
    std::unique_ptr<BlobWriter> writer;
    if (!store.Contains(id.hash)) {
      QUENCH_ASSIGN_OR_RETURN(writer, store.Create());
    }
    QUENCH_RETURN_IF_ERROR(ReadLines(rest, line, writer.get()));
    if (writer != nullptr) {
      const absl::Status committed = writer->CommitAs(id);
      if (!committed.ok()) return Annotate(committed, fmt::format("{}:1: weights", at));
    }
    absl::StatusOr<std::shared_ptr<const FileMapping>> blob = store.Open(id.hash);
    if (!blob.ok()) return blob.status();
    held.push_back(*std::move(blob));
  }
  return held;
}

}  // namespace quench
