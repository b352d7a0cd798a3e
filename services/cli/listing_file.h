// Where what a command lists goes: standard output, or a file.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <string>
#include <vector>

#include "services/cli/options.h"

namespace quench::cli {

struct ListingFile {
  std::string output;  // empty: standard output
  bool force = false;
};
// --output,-o and --force,-f, which holds for the files of `others`, options of the command, too.
void AddListingFile(const Options& options, const std::shared_ptr<ListingFile>& file,
                    const std::vector<std::string>& others = {});
// Before the work: ALREADY_EXISTS where the file is there and may not be replaced.
absl::Status CheckListingFile(const ListingFile& file);
absl::Status WriteListing(const std::string& text, const ListingFile& file);

}  // namespace quench::cli
