#include "common/ir/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxFile = size_t{16} << 30;
constexpr uint64_t kMaxHeader = uint64_t{1} << 20;  // NumPy's own limit is 10,000 characters

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> dims;
  size_t data_offset = 0;
};

struct Code {
  std::string_view descr;
  DataType dtype;
};
constexpr Code kCodes[] = {
    {"<f4", DataType::kF32}, {"<f8", DataType::kF64},   {"<f2", DataType::kF16},
    {"<i8", DataType::kI64}, {"<i4", DataType::kI32},   {"<i2", DataType::kI16},
    {"|i1", DataType::kI8},  {"<u8", DataType::kU64},   {"<u4", DataType::kU32},
    {"<u2", DataType::kU16}, {"|u1", DataType::kU8},    {"|b1", DataType::kBool},
    {"<c8", DataType::kC64}, {"<c16", DataType::kC128},
};

std::optional<DataType> TypeOf(std::string_view descr) {
  for (const Code& code : kCodes) {
    if (code.descr == descr) return code.dtype;
  }
  return std::nullopt;
}

// Text after `'key':` in the header's Python dict literal, or nullopt.
std::optional<std::string_view> Field(std::string_view header, std::string_view key) {
  const size_t at = header.find("'" + std::string(key) + "'");
  if (at == std::string_view::npos) return std::nullopt;
  const size_t colon = header.find(':', at);
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(colon + 1);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return rest;
}

bool ParseShape(std::string_view text, std::vector<int64_t>& dims) {
  if (text.empty() || text.front() != '(') return false;
  text.remove_prefix(1);
  int64_t value = -1;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c))) {
      value = std::max<int64_t>(value, 0) * 10 + (c - '0');
      if (value > (int64_t{1} << 48) || dims.size() > 64) return false;
    } else if (c == ',' || c == ')') {
      if (value >= 0) dims.push_back(value);
      value = -1;
      if (c == ')') return true;
    } else if (c != ' ' && c != 'L') {
      return false;
    }
  }
  return false;
}

// `begin` is the file's beginning: all of the header, or all there is.
absl::StatusOr<Header> ParseHeader(std::string_view begin, const std::string& path) {
  const auto broken = [&](std::string_view what) {
    return InvalidArgument("`{}`: {}", path, what);
  };
  if (begin.size() < 10 || begin.substr(0, 6) != kMagic)
    return broken("not a .npy file (wrong magic bytes)");
  const int major = static_cast<uint8_t>(begin[6]);
  if (major < 1 || major > 3)
    return broken(fmt::format("format version {}; 1 to 3 are read", major));
  size_t length =
      static_cast<uint8_t>(begin[8]) | (static_cast<size_t>(static_cast<uint8_t>(begin[9])) << 8);
  size_t start = 10;
  if (major >= 2) {
    if (begin.size() < 12) return broken("truncated header");
    length |= (static_cast<size_t>(static_cast<uint8_t>(begin[10])) << 16) |
              (static_cast<size_t>(static_cast<uint8_t>(begin[11])) << 24);
    start = 12;
  }
  if (begin.size() - start < length) return broken("truncated header");
  const std::string_view text = begin.substr(start, length);
  Header header;
  header.data_offset = start + length;
  const auto descr = Field(text, "descr");
  const auto order = Field(text, "fortran_order");
  const auto shape = Field(text, "shape");
  if (!descr || !order || !shape) return broken("header lacks `descr`, `fortran_order` or `shape`");
  if (descr->empty() || descr->front() != '\'') return broken("structured dtypes are not read");
  header.descr = std::string(descr->substr(1, descr->find('\'', 1) - 1));
  header.fortran = order->substr(0, 4) == "True";
  if (!ParseShape(*shape, header.dims)) return broken("malformed `shape`");
  return header;
}

// Column-major to row-major.
Tensor Transposed(const Tensor& source) {
  const std::vector<int64_t>& dims = source.dims();
  Tensor result = Tensor::Zeros(source.dtype(), dims);
  const size_t width = static_cast<size_t>(DataTypeBits(source.dtype()) / 8);
  std::byte* out = result.mutable_bytes();
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t i = 0; i < source.size(); ++i) {
    int64_t from = 0;
    for (size_t d = dims.size(); d-- > 0;) from = from * dims[d] + index[d];
    std::memcpy(out + static_cast<size_t>(i) * width,
                source.bytes().data() + static_cast<size_t>(from) * width, width);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
  return result;
}

// The dtype, if a file of `size` bytes holds just the array that its header announces.
absl::StatusOr<DataType> CheckData(const Header& header, uint64_t size, const std::string& name) {
  const std::optional<DataType> dtype = TypeOf(header.descr);
  if (!dtype) {
    return InvalidArgument("`{}`: dtype `{}` is not read; little-endian numbers and bools are",
                           name, header.descr);
  }
  const std::optional<int64_t> count = ElementCount(header.dims);
  const uint64_t available = size - header.data_offset;
  const bool fits = count && static_cast<uint64_t>(*count) <= kMaxFile;
  const std::string needed = fits ? std::to_string(DataTypeBytes(*dtype, *count)) : "too many";
  if (needed != std::to_string(available)) {
    return InvalidArgument("`{}`: has {} bytes of data, its shape and dtype need {}", name,
                           available, needed);
  }
  return *dtype;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpyFile>> NpyFile::Open(const std::filesystem::path& path,
                                                       const std::string& shown) {
  const std::string name = shown.empty() ? path.string() : shown;
  // A pipe is refused below, not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, "open", name);
  std::unique_ptr<NpyFile> file(new NpyFile(fd, name));
  struct stat info{};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "inspect", name);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("`{}` is not a regular file", name);
  const auto size = static_cast<uint64_t>(info.st_size);
  std::string begin(static_cast<size_t>(std::min<uint64_t>(size, kMaxHeader)), '\0');
  QUENCH_RETURN_IF_ERROR(
      file->ReadAt(0, std::as_writable_bytes(std::span(begin.data(), begin.size()))));
  QUENCH_ASSIGN_OR_RETURN(Header header, ParseHeader(begin, name));
  QUENCH_ASSIGN_OR_RETURN(file->dtype_, CheckData(header, size, name));
  file->fortran_ = header.fortran && header.dims.size() > 1;
  file->dims_ = std::move(header.dims);
  file->data_offset_ = header.data_offset;
  return file;
}

absl::StatusOr<Tensor> ParseNpy(std::string_view bytes, const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const Header header, ParseHeader(bytes.substr(0, kMaxHeader), name));
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, CheckData(header, bytes.size(), name));
  Tensor tensor = Tensor::Zeros(dtype, header.dims);
  const std::string_view data = bytes.substr(header.data_offset);
  if (!data.empty()) std::memcpy(tensor.mutable_bytes(), data.data(), data.size());
  return header.fortran && header.dims.size() > 1 ? Transposed(tensor) : tensor;
}

NpyFile::~NpyFile() { ::close(fd_); }

absl::Status NpyFile::ReadAt(uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", shown_);
    if (got == 0)
      return absl::DataLossError(fmt::format("`{}` became shorter while it was read", shown_));
    into = into.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> NpyFile::Rows(int64_t first, int64_t count) const {
  if (fortran_ && (first != 0 || count != dims_[0])) {
    return Unsupported(
        "`{}`: rows of a column-major array are not read one by one; store it in "
        "row-major (C) order",
        shown_);
  }
  std::vector<int64_t> dims = dims_;
  dims[0] = count;
  Tensor rows = Tensor::Zeros(dtype_, dims);
  const uint64_t row_bytes = count == 0 ? 0 : rows.bytes().size() / static_cast<uint64_t>(count);
  QUENCH_RETURN_IF_ERROR(ReadAt(data_offset_ + static_cast<uint64_t>(first) * row_bytes,
                                {rows.mutable_bytes(), rows.bytes().size()}));
  return fortran_ ? Transposed(rows) : rows;
}

absl::StatusOr<Tensor> NpyFile::All() const {
  if (!dims_.empty()) return Rows(0, dims_[0]);
  Tensor scalar = Tensor::Zeros(dtype_, {});
  QUENCH_RETURN_IF_ERROR(ReadAt(data_offset_, {scalar.mutable_bytes(), scalar.bytes().size()}));
  return scalar;
}

absl::StatusOr<Tensor> ReadNpy(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<NpyFile> file, NpyFile::Open(path));
  return file->All();
}

absl::StatusOr<std::string> NpyHeader(DataType dtype, std::span<const int64_t> dims) {
  const Code* code = std::find_if(std::begin(kCodes), std::end(kCodes),
                                  [&](const Code& c) { return c.dtype == dtype; });
  if (code == std::end(kCodes)) return Unsupported(".npy has no dtype for {}", DataTypeName(dtype));
  std::string shape;
  for (const int64_t dim : dims) shape += fmt::format("{}, ", dim);
  if (dims.size() > 1) shape.resize(shape.size() - 2);
  if (dims.size() == 1) shape.resize(shape.size() - 1);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", code->descr, shape);
  const size_t unpadded = 10 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

std::string NpyStemOf(std::string input) {
  std::replace(input.begin(), input.end(), '/', '_');
  std::replace(input.begin(), input.end(), ':', '_');
  return input;
}

absl::Status WriteNpy(const Tensor& tensor, const std::filesystem::path& path) {
  Tensor written = tensor;
  absl::StatusOr<std::string> file = NpyHeader(tensor.dtype(), tensor.dims());
  if (!file.ok() && IsFloat(tensor.dtype())) {
    std::vector<float> wide(static_cast<size_t>(tensor.size()));
    for (size_t i = 0; i < wide.size(); ++i)
      wide[i] = static_cast<float>(tensor.FloatAt(static_cast<int64_t>(i)));
    written = Tensor::Of(DataType::kF32, tensor.dims(), wide);
    file = NpyHeader(DataType::kF32, tensor.dims());
  }
  if (!file.ok()) return Annotate(file.status(), fmt::format("`{}`", path.string()));
  file->append(reinterpret_cast<const char*>(written.bytes().data()), written.bytes().size());
  return WriteFileAtomically(path, *file);
}

}  // namespace quench
