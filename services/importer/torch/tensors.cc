#include "services/importer/torch/tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/graph/weights.h"

namespace quench::importer {
namespace {

constexpr int64_t kMaxGathered = int64_t{256} << 20;

struct TypeRow {
  int64_t scalar_type;
  DataType dtype;
  std::string_view name, storage;
};

// Quantized types are integers here; their scales stand beside them.
constexpr TypeRow kTypes[] = {
    {0, DataType::kU8, "uint8", "ByteStorage"},
    {1, DataType::kI8, "int8", "CharStorage"},
    {2, DataType::kI16, "int16", "ShortStorage"},
    {3, DataType::kI32, "int32", "IntStorage"},
    {4, DataType::kI64, "int64", "LongStorage"},
    {5, DataType::kF16, "float16", "HalfStorage"},
    {6, DataType::kF32, "float32", "FloatStorage"},
    {7, DataType::kF64, "float64", "DoubleStorage"},
    {9, DataType::kC64, "complex64", "ComplexFloatStorage"},
    {10, DataType::kC128, "complex128", "ComplexDoubleStorage"},
    {11, DataType::kBool, "bool", "BoolStorage"},
    {12, DataType::kI8, "qint8", "QInt8Storage"},
    {13, DataType::kU8, "quint8", "QUInt8Storage"},
    {14, DataType::kI32, "qint32", "QInt32Storage"},
    {15, DataType::kBF16, "bfloat16", "BFloat16Storage"},
    {23, DataType::kF8E5M2, "float8_e5m2", ""},
    {24, DataType::kF8E4M3FN, "float8_e4m3fn", ""},
    {25, DataType::kF8E5M2FNUZ, "float8_e5m2fnuz", ""},
    {26, DataType::kF8E4M3FNUZ, "float8_e4m3fnuz", ""},
    {27, DataType::kU16, "uint16", ""},
    {28, DataType::kU32, "uint32", ""},
    {29, DataType::kU64, "uint64", ""},
};

std::optional<std::vector<int64_t>> IntsOf(const Pickled& value) {
  const Pickled* list = &value;
  if (value.Is(Pickled::Kind::kObject) && value.items[1]->items.size() == 1 && !value.IsSequence())
    list = value.items[1]->items[0];  // torch.Size, build_intlist
  if (!list->IsSequence()) return std::nullopt;
  std::vector<int64_t> ints;
  for (const Pickled* item : list->items) {
    if (!item->Is(Pickled::Kind::kInt)) return std::nullopt;
    ints.push_back(item->number);
  }
  return ints;
}

bool IsDense(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != step) return false;
    step *= dims[i];
  }
  return true;
}

// The tensor's elements one after the other.
Tensor Gather(DataType dtype, const std::byte* first, const std::vector<int64_t>& dims,
              const std::vector<int64_t>& strides) {
  Tensor result = Tensor::Zeros(dtype, dims);
  const auto width = static_cast<size_t>(DataTypeBits(dtype) / 8);
  std::byte* out = result.mutable_bytes();
  std::vector<int64_t> index(dims.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0, count = result.size(); i < count; ++i, out += width) {
    std::memcpy(out, first + at * static_cast<int64_t>(width), width);
    for (size_t axis = dims.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < dims[axis]) break;
      at -= strides[axis] * dims[axis];
      index[axis] = 0;
    }
  }
  return result;
}

// ('storage', type, key, device, elements)
struct StorageName {
  DataType dtype = DataType::kUndefined;
  std::string key;
};

absl::StatusOr<StorageName> ReadStorageName(const Pickled& value) {
  if (!value.Is(Pickled::Kind::kPersistent) || !value.items[0]->Is(Pickled::Kind::kTuple) ||
      value.items[0]->items.size() < 3 || !value.items[0]->items[1]->Is(Pickled::Kind::kGlobal) ||
      !value.items[0]->items[2]->Is(Pickled::Kind::kText))
    return InvalidArgument("a tensor has no storage that could be read");
  const std::string& type = value.items[0]->items[1]->text;
  return StorageName{DataTypeOfTorchName(type.substr(type.rfind('.') + 1)),
                     value.items[0]->items[2]->text};
}

absl::StatusOr<TorchScale> ReadScale(const Pickled& value, const StorageReader& storages) {
  const Pickled::Kind kind = value.kind;
  if (kind != Pickled::Kind::kTuple || value.items.size() < 3 ||
      !value.items[0]->Is(Pickled::Kind::kGlobal))
    return InvalidArgument("a quantized tensor has no scale that could be read");
  TorchScale scale;
  const auto& items = value.items;
  if (items[0]->text == "torch.per_tensor_affine" && items[1]->Is(Pickled::Kind::kFloat) &&
      items[2]->Is(Pickled::Kind::kInt)) {
    scale.scale = {items[1]->real};
    scale.zero = {items[2]->number};
    return scale;
  }
  const auto is_plain = [](const Pickled& tensor) {
    return tensor.Callee().starts_with("torch._utils._rebuild_tensor");
  };
  if (items[0]->text != "torch.per_channel_affine" || items.size() < 4 || !is_plain(*items[1]) ||
      !is_plain(*items[2]) || !items[3]->Is(Pickled::Kind::kInt))
    return InvalidArgument("a quantized tensor has no scale that could be read");
  QUENCH_ASSIGN_OR_RETURN(const TorchTensor scales, ReadTensor(*items[1], storages));
  QUENCH_ASSIGN_OR_RETURN(const TorchTensor zeros, ReadTensor(*items[2], storages));
  if (scales.tensor.size() != zeros.tensor.size() || !IsInteger(zeros.tensor.dtype()))
    return InvalidArgument("a quantized tensor has {} scales and {} zero points",
                           scales.tensor.size(), zeros.tensor.size());
  for (int64_t i = 0; i < scales.tensor.size(); ++i) {
    scale.scale.push_back(scales.tensor.FloatAt(i));
    scale.zero.push_back(zeros.tensor.IntAt(i));
  }
  scale.axis = items[3]->number;
  return scale;
}

}  // namespace

absl::StatusOr<DataType> DataTypeOfScalarType(int64_t scalar_type) {
  for (const TypeRow& row : kTypes) {
    if (row.scalar_type == scalar_type) return row.dtype;
  }
  return Unsupported("PyTorch's type number {} is not read", scalar_type);
}

int64_t ScalarTypeOf(DataType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return row.scalar_type;
  }
  return -1;
}

DataType DataTypeOfTorchName(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (name == row.name || (!row.storage.empty() && name == row.storage)) return row.dtype;
  }
  return DataType::kUndefined;
}

absl::StatusOr<Tensor> StridedTensor(DataType dtype, const TorchBytes& storage, int64_t offset,
                                     const std::vector<int64_t>& dims,
                                     const std::vector<int64_t>& strides) {
  if (DataTypeBits(dtype) < 8) return Unsupported("has elements of a type that is not read");
  QUENCH_ASSIGN_OR_RETURN(const TensorHeader header, HeaderOf(dtype, dims));
  if (strides.size() != dims.size() || offset < 0)
    return InvalidArgument("has {} sizes, {} strides and begins at {}", dims.size(), strides.size(),
                           offset);
  const int64_t width = DataTypeBits(dtype) / 8;
  const auto elements = static_cast<int64_t>(storage.bytes.size()) / width;
  int64_t last = offset;
  for (size_t i = 0; i < dims.size() && header.count > 0; ++i) {
    int64_t reach = 0;
    if (strides[i] < 0 || __builtin_mul_overflow(dims[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return InvalidArgument("has sizes [{}] and strides [{}], which no storage holds",
                             fmt::join(dims, ", "), fmt::join(strides, ", "));
  }
  if (header.count > 0 && last >= elements)
    return InvalidArgument("needs {} elements of its storage, which has {}", last + 1, elements);
  if (header.count == 0) return Tensor::Zeros(dtype, dims);
  const std::byte* first = storage.bytes.data() + offset * width;
  const bool aligned = reinterpret_cast<uintptr_t>(first) % static_cast<uintptr_t>(width) == 0;
  if (aligned && IsDense(dims, strides)) {
    return Tensor::View(dtype, dims, {first, static_cast<size_t>(header.bytes)}, storage.owner);
  }
  if (header.count - elements > kMaxGathered)
    return absl::ResourceExhaustedError(
        fmt::format("repeats {} elements of its storage as {}", elements, header.count));
  return Gather(dtype, first, dims, strides);
}

bool IsTensor(const Pickled& value) {
  const std::string& callee = value.Callee();
  return callee.starts_with("torch._utils._rebuild_") ||
         callee == "torch._tensor._rebuild_from_type_v2";
}

absl::StatusOr<TorchTensor> ReadTensor(const Pickled& value, const StorageReader& storages) {
  const std::string& callee = value.Callee();
  const std::vector<const Pickled*>& arguments = value.items[1]->items;
  const bool wraps = callee == "torch._utils._rebuild_parameter" ||
                     callee == "torch._utils._rebuild_parameter_with_state";
  if (wraps) {  // a parameter of a parameter is none
    if (arguments.empty() || !IsTensor(*arguments[0]) ||
        arguments[0]->Callee().starts_with("torch._utils._rebuild_parameter"))
      return InvalidArgument("a parameter is not a tensor");
    return ReadTensor(*arguments[0], storages);
  }
  const bool quantized = callee == "torch._utils._rebuild_qtensor";
  if (arguments.size() < (quantized ? 5u : 4u) || !arguments[1]->Is(Pickled::Kind::kInt) ||
      callee == "torch._tensor._rebuild_from_type_v2")
    return InvalidArgument("a tensor is described by `{}`, which is not read", Printable(callee));
  QUENCH_ASSIGN_OR_RETURN(const StorageName name, ReadStorageName(*arguments[0]));
  const auto dims = IntsOf(*arguments[2]), strides = IntsOf(*arguments[3]);
  if (!dims || !strides) return InvalidArgument("a tensor has no shape that could be read");
  if (name.dtype == DataType::kUndefined)
    return Unsupported("a tensor has elements of a type that is not read");
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes bytes, storages(name.key));
  TorchTensor result;
  absl::StatusOr<Tensor> tensor =
      StridedTensor(name.dtype, bytes, arguments[1]->number, *dims, *strides);
  if (!tensor.ok())
    return Annotate(tensor.status(), fmt::format("a tensor in storage `{}`", Printable(name.key)));
  result.tensor = *std::move(tensor);
  if (quantized) {
    QUENCH_ASSIGN_OR_RETURN(result.scale, ReadScale(*arguments[4], storages));
    const bool fits = result.scale.scale.size() == 1 ||
                      (result.scale.axis >= 0 && result.scale.axis < result.tensor.rank() &&
                       result.tensor.dims()[static_cast<size_t>(result.scale.axis)] ==
                           static_cast<int64_t>(result.scale.scale.size()));
    if (!fits) return InvalidArgument("a quantized tensor has scales that do not fit its shape");
  }
  return result;
}

}  // namespace quench::importer
