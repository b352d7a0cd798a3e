// The files of the console's page, as they lie in page/.
#pragma once

#include <string>
#include <string_view>

namespace quench::gateway {

struct PageFile {
  const char* path = "";  // in an address: `/main.js`
  const char* type = "";  // of MIME
  std::string_view text;
  std::string tag;  // its ETag
};

// Null: there is none with this path.
const PageFile* FindPageFile(std::string_view path);

}  // namespace quench::gateway
