// Runs in a process of its own that may open no file: hdf5_file.cc. Everything that libhdf5 reads comes
// from memory, through a driver of ours.
#include "services/importer/keras/hdf5_copy.h"

#include <fmt/ranges.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxObjects = 200'000;  // links, attributes and texts
constexpr int kMaxDepth = 64;            // of groups
constexpr size_t kMaxText = 256 << 20;   // of all attributes
constexpr hsize_t kPiece = 4 << 20;      // bytes that are read at once
constexpr hsize_t kMaxChunk = 64 << 20;  // bytes
constexpr hsize_t kAlignment = 64;       // of data sets in the copy
constexpr hsize_t kDeflateRatio = 1032;  // what deflate can make of a byte
constexpr hsize_t kSmall = 64 << 10;     // bytes that need not be stored to be believed
constexpr hsize_t kTotal = hsize_t{4} << 30;

// ---- A file in memory, for libhdf5 ----

struct Image {
  H5FD_t base;  // first: libhdf5's own part
  haddr_t end_of_allocation;
};

std::span<const std::byte> image_bytes;  // this process reads one file

H5FD_t* OpenImage(const char*, unsigned, hid_t, haddr_t) {
  auto* image = static_cast<Image*>(std::calloc(1, sizeof(Image)));
  return image == nullptr ? nullptr : &image->base;
}
herr_t CloseImage(H5FD_t* file) {
  std::free(file);
  return 0;
}
int CompareImages(const H5FD_t*, const H5FD_t*) { return 0; }
haddr_t EndOfAllocation(const H5FD_t* file, H5FD_mem_t) {
  return reinterpret_cast<const Image*>(file)->end_of_allocation;
}
herr_t SetEndOfAllocation(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  reinterpret_cast<Image*>(file)->end_of_allocation = address;
  return 0;
}
haddr_t EndOfFile(const H5FD_t*, H5FD_mem_t) { return image_bytes.size(); }
herr_t ReadImage(H5FD_t*, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* to) {
  if (size > image_bytes.size() || address > image_bytes.size() - size) return -1;
  std::memcpy(to, image_bytes.data() + address, size);
  return 0;
}
herr_t RefuseWrite(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) { return -1; }

hid_t RegisterImageDriver() {
  static H5FD_class_t driver{};
  driver.name = "quench_image";
  driver.maxaddr = (haddr_t{1} << 62) - 1;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.open = OpenImage;
  driver.close = CloseImage;
  driver.cmp = CompareImages;
  driver.get_eoa = EndOfAllocation;
  driver.set_eoa = SetEndOfAllocation;
  driver.get_eof = EndOfFile;
  driver.read = ReadImage;
  driver.write = RefuseWrite;
  const H5FD_mem_t map[] = H5FD_FLMAP_SINGLE;
  std::copy(std::begin(map), std::end(map), std::begin(driver.fl_map));
  return H5FDregister(&driver);
}

// ---- Handles and errors ----

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  const hid_t id_;
  herr_t (*const close_)(hid_t);
};

// The error that libhdf5 reported last, with its place.
std::string LastError() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* to) -> herr_t {
        auto& found = *static_cast<std::string*>(to);
        if (found.empty() && error->desc != nullptr) found = error->desc;
        return 0;
      },
      &text);
  return text.empty() ? "it is damaged" : text;
}

struct Numbers {
  std::string_view name;  // as DataTypeName has it
  hid_t memory = -1;      // little-endian
};

bool IsHalf(hid_t type) {
  size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 &&
         sign == 15 && exponent == 10 && exponent_bits == 5 && mantissa == 0 &&
         mantissa_bits == 10 && H5Tget_ebias(type) == 15 && H5Tget_order(type) == H5T_ORDER_LE;
}

std::optional<Numbers> NumbersOf(hid_t type) {
  const size_t size = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      if (size == 2 && IsHalf(type)) return Numbers{"f16", type};
      if (size == 4) return Numbers{"f32", H5T_IEEE_F32LE};
      if (size == 8) return Numbers{"f64", H5T_IEEE_F64LE};
      return std::nullopt;
    case H5T_INTEGER: {
      const bool has_sign = H5Tget_sign(type) == H5T_SGN_2;
      if (size == 1) return has_sign ? Numbers{"i8", H5T_STD_I8LE} : Numbers{"u8", H5T_STD_U8LE};
      if (size == 2)
        return has_sign ? Numbers{"i16", H5T_STD_I16LE} : Numbers{"u16", H5T_STD_U16LE};
      if (size == 4)
        return has_sign ? Numbers{"i32", H5T_STD_I32LE} : Numbers{"u32", H5T_STD_U32LE};
      if (size == 8)
        return has_sign ? Numbers{"i64", H5T_STD_I64LE} : Numbers{"u64", H5T_STD_U64LE};
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// ---- The copy ----

class Copier {
 public:
  Copier(size_t file_bytes, int data_fd)
      : most_bytes_(std::max<hsize_t>(kTotal, 4 * file_bytes)), data_fd_(data_fd) {}

  Json Copy(hid_t root) {
    if (const absl::Status status = CopyGroup(root, "", 0); !status.ok())
      return {{"error", MessageOf(status)}};
    return {{"attributes", std::move(attributes_)}, {"datasets", std::move(datasets_)}};
  }
  bool failed() const { return failed_; }  // to write

 private:
  absl::Status Count() {
    if (++objects_ <= kMaxObjects) return absl::OkStatus();
    return InvalidArgument("has more than {} objects", kMaxObjects);
  }
  absl::Status CopyGroup(hid_t group, const std::string& path, int depth);
  absl::Status CopyLink(hid_t group, const std::string& name, const std::string& path, int depth);
  absl::Status CopyAttributes(hid_t object, const std::string& path);
  absl::StatusOr<std::optional<Json>> Texts(hid_t attribute);
  Json CopyDataset(hid_t dataset);
  absl::Status CopyNumbers(hid_t dataset, hid_t memory, size_t size,
                           const std::vector<hsize_t>& dims, const std::vector<hsize_t>& chunk);
  absl::Status ReadPart(hid_t dataset, hid_t memory, hid_t space, const std::vector<hsize_t>& start,
                        const std::vector<hsize_t>& count, size_t bytes);
  absl::Status Write(const char* bytes, size_t size);

  const hsize_t most_bytes_;
  const int data_fd_;
  Json attributes_ = Json::object(), datasets_ = Json::object();
  std::map<haddr_t, Json> copied_;  // data sets may have several names
  std::vector<haddr_t> open_groups_;
  std::string buffer_;
  size_t objects_ = 0, text_bytes_ = 0;
  hsize_t written_ = 0;
  bool failed_ = false;
};

absl::Status Copier::Write(const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t done = ::write(data_fd_, bytes, size);
    if (done < 0 && errno == EINTR) continue;
    failed_ = done <= 0;
    if (failed_) return Internal("its copy cannot be written");
    bytes += done;
    size -= static_cast<size_t>(done);
    written_ += static_cast<hsize_t>(done);
  }
  return absl::OkStatus();
}

// A scalar or a list of texts; nothing for what is no text.
absl::StatusOr<std::optional<Json>> Copier::Texts(hid_t attribute) {
  const Handle type(H5Aget_type(attribute), H5Tclose), space(H5Aget_space(attribute), H5Sclose);
  if (!type.ok() || !space.ok() || H5Tget_class(type.get()) != H5T_STRING)
    return std::optional<Json>();
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count < 0 || static_cast<size_t>(count) > kMaxObjects) return std::optional<Json>();
  Json texts = Json::array();
  const auto add = [&](const char* text, size_t size) -> absl::Status {
    QUENCH_RETURN_IF_ERROR(Count());
    text_bytes_ += size;
    if (text_bytes_ > kMaxText)
      return InvalidArgument("has more than {} MiB of attributes", kMaxText >> 20);
    texts.push_back(std::string(text, size));
    return absl::OkStatus();
  };
  const auto number = static_cast<size_t>(count);
  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> pointers(number, nullptr);
    const Handle memory(H5Tcopy(type.get()), H5Tclose);
    if (number > 0 && H5Aread(attribute, memory.get(), static_cast<void*>(pointers.data())) < 0)
      return std::optional<Json>();
    for (const char* text : pointers)
      QUENCH_RETURN_IF_ERROR(
          add(text == nullptr ? "" : text, text == nullptr ? 0 : std::strlen(text)));
    H5Dvlen_reclaim(memory.get(), space.get(), H5P_DEFAULT, static_cast<void*>(pointers.data()));
    return std::optional(std::move(texts));
  }
  const size_t size = H5Tget_size(type.get());
  if (size == 0 || (number > 0 && size > kMaxText / number)) return std::optional<Json>();
  std::vector<char> bytes(size * number);
  if (number > 0 && H5Aread(attribute, type.get(), bytes.data()) < 0) return std::optional<Json>();
  for (size_t i = 0; i < number; ++i) {
    const char* text = bytes.data() + i * size;
    QUENCH_RETURN_IF_ERROR(add(text, ::strnlen(text, size)));
  }
  return std::optional(std::move(texts));
}

absl::Status Copier::CopyAttributes(hid_t object, const std::string& path) {
  H5O_info_t info{};
  if (H5Oget_info(object, &info) < 0) return InvalidArgument("{}", LastError());
  for (hsize_t i = 0; i < info.num_attrs; ++i) {
    QUENCH_RETURN_IF_ERROR(Count());
    const Handle attribute(
        H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_NATIVE, i, H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose);
    if (!attribute.ok()) return InvalidArgument("an attribute of `{}`: {}", path, LastError());
    const ssize_t length = H5Aget_name(attribute.get(), 0, nullptr);
    if (length <= 0 || length > 1024) continue;
    std::string name(static_cast<size_t>(length), '\0');
    H5Aget_name(attribute.get(), name.size() + 1, name.data());
    QUENCH_ASSIGN_OR_RETURN(std::optional<Json> texts, Texts(attribute.get()));
    if (texts) attributes_[path.empty() ? "/" : path][name] = *std::move(texts);
  }
  return absl::OkStatus();
}

absl::Status Copier::CopyGroup(hid_t group, const std::string& path, int depth) {
  if (depth > kMaxDepth) return InvalidArgument("has groups nested deeper than {}", kMaxDepth);
  H5O_info_t object{};
  if (H5Oget_info(group, &object) < 0) return InvalidArgument("{}", LastError());
  if (std::find(open_groups_.begin(), open_groups_.end(), object.addr) != open_groups_.end())
    return InvalidArgument("group `{}` contains itself", path);
  open_groups_.push_back(object.addr);
  QUENCH_RETURN_IF_ERROR(CopyAttributes(group, path));
  H5G_info_t info{};
  if (H5Gget_info(group, &info) < 0) return InvalidArgument("{}", LastError());
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    QUENCH_RETURN_IF_ERROR(Count());
    const ssize_t length =
        H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
    if (length <= 0 || length > 4096)
      return InvalidArgument("a link of `{}`: {}", path, LastError());
    std::string name(static_cast<size_t>(length), '\0');
    H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size() + 1,
                       H5P_DEFAULT);
    if (depth == 0 && name.starts_with("optimizer")) continue;
    QUENCH_RETURN_IF_ERROR(CopyLink(group, name, path.empty() ? name : path + "/" + name, depth));
  }
  open_groups_.pop_back();
  return absl::OkStatus();
}

absl::Status Copier::CopyLink(hid_t group, const std::string& name, const std::string& path,
                              int depth) {
  H5L_info_t link{};
  if (H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT) < 0)
    return InvalidArgument("{}", LastError());
  if (link.type != H5L_TYPE_HARD) {
    datasets_[path] = {
        {"refused", link.type == H5L_TYPE_SOFT ? "is a soft link" : "is a link to another file"}};
    return absl::OkStatus();
  }
  const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose);
  if (!object.ok()) {
    datasets_[path] = {{"refused", fmt::format("cannot be opened: {}", LastError())}};
    return absl::OkStatus();
  }
  switch (H5Iget_type(object.get())) {
    case H5I_GROUP:
      return CopyGroup(object.get(), path, depth + 1);
    case H5I_DATASET: {
      H5O_info_t info{};
      if (H5Oget_info(object.get(), &info) < 0) return InvalidArgument("{}", LastError());
      const auto known = copied_.find(info.addr);
      if (known == copied_.end()) {
        datasets_[path] = copied_[info.addr] = CopyDataset(object.get());
        if (failed_) return Internal("its copy cannot be written");
      } else {
        datasets_[path] = known->second;
      }
      break;
    }
    default:
      break;
  }
  return absl::OkStatus();
}

Json Copier::CopyDataset(hid_t dataset) {
  const auto refused = [](std::string why) { return Json{{"refused", std::move(why)}}; };
  const Handle type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose),
      list(H5Dget_create_plist(dataset), H5Pclose);
  if (!type.ok() || !space.ok() || !list.ok()) return refused(LastError());
  const std::optional<Numbers> numbers = NumbersOf(type.get());
  if (!numbers) return refused("holds no numbers of a known type");
  const H5D_layout_t layout = H5Pget_layout(list.get());
  if (layout == H5D_VIRTUAL) return refused("is a virtual data set");
  if (H5Pget_external_count(list.get()) != 0) return refused("is stored in another file");
  const int filters = H5Pget_nfilters(list.get());
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0;
    size_t values = 0;
    const H5Z_filter_t filter = H5Pget_filter2(list.get(), static_cast<unsigned>(i), &flags,
                                               &values, nullptr, 0, nullptr, nullptr);
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE)
      return refused(fmt::format("is stored with filter {}, deflate and shuffle are read",
                                 static_cast<int>(filter)));
  }
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) return refused("holds nothing");
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0) return refused(LastError());
  std::vector<hsize_t> dims(static_cast<size_t>(rank)), chunk;
  H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  const size_t size = H5Tget_size(numbers->memory);
  hsize_t bytes = size;
  for (const hsize_t dim : dims) {
    if (dim != 0 && bytes > most_bytes_ / dim)
      return refused(fmt::format("claims the shape [{}], of which the file has no numbers",
                                 fmt::join(dims, ", ")));
    bytes *= dim;
  }
  const hsize_t stored = H5Dget_storage_size(dataset);
  if (bytes > kSmall && bytes > stored * (filters > 0 ? kDeflateRatio : 1)) {
    return refused(fmt::format("claims the shape [{}], of which the file has {} bytes",
                               fmt::join(dims, ", "), stored));
  }
  if (layout == H5D_CHUNKED) {
    chunk.resize(dims.size());
    hsize_t chunk_bytes = size;
    if (H5Pget_chunk(list.get(), rank, chunk.data()) < 0) return refused(LastError());
    for (const hsize_t dim : chunk) {
      if (dim == 0 || chunk_bytes > kMaxChunk / dim)
        return refused(fmt::format("has chunks of [{}], at most {} MiB are read",
                                   fmt::join(chunk, ", "), kMaxChunk >> 20));
      chunk_bytes *= dim;
    }
  }
  static constexpr char kZeros[kAlignment] = {};
  if (!Write(kZeros, static_cast<size_t>((kAlignment - written_ % kAlignment) % kAlignment)).ok())
    return {};
  const hsize_t offset = written_;
  if (bytes > most_bytes_ - std::min(offset, most_bytes_))
    return refused(fmt::format("is more than {} bytes with those before it", most_bytes_));
  if (bytes > 0) {
    const absl::Status status = CopyNumbers(dataset, numbers->memory, size, dims, chunk);
    if (!status.ok()) return refused(MessageOf(status));
  }
  return {{"dtype", numbers->name}, {"dims", dims}, {"offset", offset}};
}

// In pieces: whole rows of the first axis whose rows are small enough, and chunks once where they are
// rows too.
absl::Status Copier::CopyNumbers(hid_t dataset, hid_t memory, size_t size,
                                 const std::vector<hsize_t>& dims,
                                 const std::vector<hsize_t>& chunk) {
  const Handle space(H5Dget_space(dataset), H5Sclose);
  size_t axis = 0;
  hsize_t row = size;
  for (const hsize_t dim : dims) row *= dim;
  if (!dims.empty()) row /= dims[0];
  while (axis + 1 < dims.size() && row > kPiece) row /= dims[++axis];
  hsize_t outer = 1;
  for (size_t i = 0; i < axis; ++i) outer *= dims[i];
  if (dims.empty()) {
    return ReadPart(dataset, memory, space.get(), {}, {}, size);
  }
  hsize_t rows = std::max<hsize_t>(1, kPiece / row);
  if (!chunk.empty()) rows = (rows + chunk[axis] - 1) / chunk[axis] * chunk[axis];
  for (hsize_t at = 0; at < outer; ++at) {
    std::vector<hsize_t> start(dims.size(), 0), count(dims);
    hsize_t rest = at;
    for (size_t i = axis; i-- > 0;) {
      start[i] = rest % dims[i];
      rest /= dims[i];
      count[i] = 1;
    }
    for (hsize_t first = 0; first < dims[axis]; first += rows) {
      start[axis] = first;
      count[axis] = std::min(rows, dims[axis] - first);
      QUENCH_RETURN_IF_ERROR(ReadPart(dataset, memory, space.get(), start, count,
                                      static_cast<size_t>(row * count[axis])));
    }
  }
  return absl::OkStatus();
}

absl::Status Copier::ReadPart(hid_t dataset, hid_t memory, hid_t space,
                              const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                              size_t bytes) {
  const Handle part(count.empty()
                        ? H5Screate(H5S_SCALAR)
                        : H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                    H5Sclose);
  if (!count.empty() &&
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) < 0)
    return InvalidArgument("{}", LastError());
  buffer_.resize(bytes);
  if (H5Dread(dataset, memory, part.get(), space, H5P_DEFAULT, buffer_.data()) < 0)
    return InvalidArgument("cannot be read: {}", LastError());
  return Write(buffer_.data(), bytes);
}

Json CopyFile(std::span<const std::byte> file, int data_fd, bool* failed) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);  // no filters from folders
  image_bytes = file;
  const hid_t driver = RegisterImageDriver();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (driver < 0 || H5Pset_driver(access.get(), driver, nullptr) < 0 ||
      H5Pset_cache(access.get(), 0, 521, kMaxChunk, 1.0) < 0)
    return {{"error", LastError()}};
  const Handle opened(H5Fopen("model", H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!opened.ok()) return {{"error", LastError()}};
  const Handle root(H5Gopen2(opened.get(), "/", H5P_DEFAULT), H5Gclose);
  if (!root.ok()) return {{"error", LastError()}};
  Copier copier(file.size(), data_fd);
  Json index = copier.Copy(root.get());
  *failed = copier.failed();
  return index;
}

}  // namespace

bool CopyHdf5(std::span<const std::byte> file, int index_fd, int data_fd) {
  bool failed = false;
  const std::string text =
      CopyFile(file, data_fd, &failed).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (failed) return false;
  for (size_t at = 0; at < text.size();) {
    const ssize_t done = ::write(index_fd, text.data() + at, text.size() - at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += static_cast<size_t>(done);
  }
  return true;
}

}  // namespace quench::importer
