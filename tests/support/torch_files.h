// PyTorch's files as tests write them: zip archives of stored entries, and pickles.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quench::testing {

struct ZipEntry {
  std::string name, bytes;
  uint16_t flags = 0, method = 0;
  uint32_t mode = 0;       // of Unix, 0: none
  uint64_t announced = 0;  // unpacked size, 0: the real one
};

std::string ZipOf(const std::vector<ZipEntry>& entries);

// Parts of a pickle of protocol 2: each puts one value on the stack.
namespace pickle {
std::string None();
std::string Bool(bool value);
std::string Int(int32_t value);
std::string Float(double value);
std::string Text(const std::string& text);
std::string List(const std::vector<std::string>& items);
std::string Tuple(const std::vector<std::string>& items);
std::string Dict(const std::vector<std::pair<std::string, std::string>>& items);
std::string Global(const std::string& module, const std::string& name);
std::string Call(const std::string& callee, const std::vector<std::string>& arguments);
// An instance of a class of the archive, with attributes.
std::string Object(const std::string& module, const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& attributes);
// A dense tensor of f32 in the storage `key`.
std::string F32(const std::string& key, const std::vector<int32_t>& dims);
std::string File(const std::string& value);
}  // namespace pickle

std::string BytesOf(const std::vector<float>& values);

}  // namespace quench::testing
