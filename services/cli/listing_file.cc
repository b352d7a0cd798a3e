#include "services/cli/listing_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "common/base/files.h"

namespace quench::cli {

void AddListingFile(const Options& options, const std::shared_ptr<ListingFile>& file,
                    const std::vector<std::string>& others) {
  std::vector<std::string> needed = {"--output"};
  needed.insert(needed.end(), others.begin(), others.end());
  options.In("Output").Add("--output,-o", file->output,
                           "Write the listing to a file instead of printing it", "FILE");
  options.In("Output").Flag("--force,-f", file->force, "Overwrite FILE").Needs(needed);
}

absl::Status CheckListingFile(const ListingFile& file) {
  std::error_code error;
  if (!file.output.empty() && !file.force && std::filesystem::exists(file.output, error)) {
    return absl::AlreadyExistsError(
        fmt::format("output `{}` exists; --force replaces it", file.output));
  }
  return absl::OkStatus();
}

absl::Status WriteListing(const std::string& text, const ListingFile& file) {
  if (!file.output.empty()) return WriteFileAtomically(file.output, text);
  fmt::print("{}", text);
  return absl::OkStatus();
}

}  // namespace quench::cli
