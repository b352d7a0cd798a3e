#include "tests/support/torch_files.h"

#include <bit>
#include <cstring>

namespace quench::testing {
namespace {

uint32_t Crc32(const std::string& bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  return ~crc;
}

template <typename T>
std::string Little(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

}  // namespace

std::string ZipOf(const std::vector<ZipEntry>& entries) {
  std::string file, directory;
  for (const ZipEntry& entry : entries) {
    const auto size = static_cast<uint32_t>(entry.bytes.size());
    const auto unpacked = entry.announced == 0 ? size : static_cast<uint32_t>(entry.announced);
    const std::string common = Little(uint16_t{20}) + Little(entry.flags) + Little(entry.method) +
                               Little(uint32_t{0}) + Little(Crc32(entry.bytes)) + Little(size) +
                               Little(unpacked) + Little(static_cast<uint16_t>(entry.name.size()));
    const auto offset = static_cast<uint32_t>(file.size());
    // Contents at multiples of 64, as PyTorch has them.
    const size_t begin = file.size() + 30 + entry.name.size();
    const std::string padding((64 - begin % 64) % 64, '\0');
    file += "PK\x03\x04" + common + Little(static_cast<uint16_t>(padding.size())) + entry.name +
            padding + entry.bytes;
    directory += "PK\x01\x02" + Little(static_cast<uint16_t>(entry.mode != 0 ? 3 << 8 | 20 : 20)) +
                 common + Little(uint16_t{0}) + Little(uint16_t{0}) + Little(uint16_t{0}) +
                 Little(uint16_t{0}) + Little(entry.mode << 16) + Little(offset) + entry.name;
  }
  const auto count = static_cast<uint16_t>(entries.size());
  const auto begin = static_cast<uint32_t>(file.size());
  return file + directory + "PK\x05\x06" + Little(uint32_t{0}) + Little(count) + Little(count) +
         Little(static_cast<uint32_t>(directory.size())) + Little(begin) + Little(uint16_t{0});
}

namespace pickle {

std::string None() { return "N"; }
std::string Bool(bool value) { return value ? "\x88" : "\x89"; }
std::string Int(int32_t value) { return "J" + Little(value); }
std::string Float(double value) {
  std::string bytes = Little(std::bit_cast<uint64_t>(value));
  return "G" + std::string(bytes.rbegin(), bytes.rend());
}
std::string Text(const std::string& text) {
  return "X" + Little(static_cast<uint32_t>(text.size())) + text;
}
std::string List(const std::vector<std::string>& items) { return "](" + Joined(items) + "e"; }
std::string Tuple(const std::vector<std::string>& items) { return "(" + Joined(items) + "t"; }
std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string all = "}(";
  for (const auto& [key, value] : items) all += Text(key) + value;
  return all + "u";
}
std::string Global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string Call(const std::string& callee, const std::vector<std::string>& arguments) {
  return callee + Tuple(arguments) + "R";
}
std::string Object(const std::string& module, const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& attributes) {
  return Global(module, name) + ")\x81" + Dict(attributes) + "b";
}
std::string F32(const std::string& key, const std::vector<int32_t>& dims) {
  std::vector<std::string> sizes, strides(dims.size());
  uint32_t elements = 1;  // wraps for files that promise more than there can be
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = Int(static_cast<int32_t>(elements));
    elements *= static_cast<uint32_t>(dims[i]);
  }
  for (const int32_t dim : dims) sizes.push_back(Int(dim));
  const std::string storage = Tuple({Text("storage"), Global("torch", "FloatStorage"), Text(key),
                                     Text("cpu"), Int(static_cast<int32_t>(elements))}) +
                              "Q";
  return Call(Global("torch._utils", "_rebuild_tensor_v2"),
              {storage, Int(0), Tuple(sizes), Tuple(strides), Bool(false),
               Call(Global("collections", "OrderedDict"), {})});
}
std::string File(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace pickle

std::string BytesOf(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace quench::testing
