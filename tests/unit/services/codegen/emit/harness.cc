#include "tests/unit/services/codegen/emit/harness.h"

#include <dlfcn.h>
#include <llvm/Object/ObjectFile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "common/base/float8.h"
#include "common/base/half.h"
#include "common/base/status.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/link/link.h"
#include "services/codegen/schedule/plan_nest.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/targets.h"

namespace quench::codegen {

absl::StatusOr<EmittedKernel> EmitLoops(ModuleBuilder& builder, const Target& target,
                                        const loops::Function& function, SymbolTable& symbols,
                                        bool vectorise, std::vector<Layout> layouts) {
  QUENCH_ASSIGN_OR_RETURN(const KernelPlan plan,
                          PlanNest({function, std::move(layouts), vectorise}, symbols, target));
  return builder.Emit(plan);
}

absl::StatusOr<std::unique_ptr<Library>> Library::Load(const Target& target, ModuleBuilder& builder,
                                                       const std::vector<EmittedKernel>& kernels) {
  for (const EmittedKernel& kernel : kernels) {
    builder.state().Kernel(kernel.symbol)->setVisibility(llvm::GlobalValue::DefaultVisibility);
  }
  QUENCH_ASSIGN_OR_RETURN(const std::string object, builder.Finish());
  QUENCH_ASSIGN_OR_RETURN(TempDir folder, TempDir::Create());
  const std::filesystem::path path = folder.path() / "kernels.o",
                              library = folder.path() / "kernels.so";
  QUENCH_RETURN_IF_ERROR(WriteFileAtomically(path, object));
  QUENCH_RETURN_IF_ERROR(LinkShared(target, {path}, "kernels", library));
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Internal("dlopen: {}", dlerror());
  return std::unique_ptr<Library>(new Library(std::move(folder), handle));
}

Library::~Library() { dlclose(handle_); }

KernelFunction Library::Find(const std::string& symbol) const {
  return reinterpret_cast<KernelFunction>(dlsym(handle_, symbol.c_str()));
}

Target HostTarget() { return ResolveTarget("host")->back(); }

Target PlainTarget() { return ResolveTarget("x86-64-v2")->back(); }

namespace {

int64_t Count(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

template <typename T>
T Read(const Buffer& buffer, int64_t i) {
  T value;
  std::memcpy(&value, buffer.bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Write(Buffer& buffer, int64_t i, T value) {
  std::memcpy(buffer.bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
}

void WriteElement(Buffer& buffer, int64_t i, double value) {
  switch (buffer.dtype) {
    case DataType::kF64:
      return Write(buffer, i, value);
    case DataType::kF32:
      return Write(buffer, i, static_cast<float>(value));
    case DataType::kF16:
      return Write(buffer, i, FloatToHalf(static_cast<float>(value)));
    case DataType::kBF16:
      return Write(buffer, i, FloatToBfloat16(static_cast<float>(value)));
    case DataType::kBool:
      return Write(buffer, i, static_cast<uint8_t>(value > 0));
    default:
      break;
  }
  if (IsFloat(buffer.dtype))
    return Write(buffer, i, FloatToFloat8(buffer.dtype, static_cast<float>(value)));
  const auto integer = static_cast<int64_t>(value);
  std::memcpy(buffer.bytes.data() + i * DataTypeBits(buffer.dtype) / 8, &integer,
              static_cast<size_t>(DataTypeBits(buffer.dtype) / 8));
}

// Where a layout puts the elements of a row-major tensor, in plain arithmetic of its own.
struct Physical {
  int64_t elements = 1;
  std::vector<int64_t> offset_of;  // by logical row-major position
};

Physical Place(const Layout& layout, const std::vector<int64_t>& dims) {
  std::vector<int> order = layout.order;
  for (int i = 0; order.size() < dims.size(); ++i) order.push_back(i);
  Physical result;
  std::vector<int64_t> stride(dims.size());
  int64_t step = layout.blocked_axis >= 0 ? layout.block : 1;
  for (size_t k = order.size(); k-- > 0;) {
    const int axis = order[k];
    stride[static_cast<size_t>(axis)] = step;
    int64_t size = dims[static_cast<size_t>(axis)];
    if (axis == layout.blocked_axis) size = (size + layout.block - 1) / layout.block;
    step *= size;
  }
  result.elements = step;
  for (int64_t i = 0; i < Count(dims); ++i) {
    int64_t rest = i, offset = 0;
    for (auto axis = static_cast<int>(dims.size()); axis-- > 0;) {
      const int64_t index = rest % dims[static_cast<size_t>(axis)];
      rest /= dims[static_cast<size_t>(axis)];
      if (axis == layout.blocked_axis) {
        offset += index / layout.block * stride[static_cast<size_t>(axis)] + index % layout.block;
      } else {
        offset += index * stride[static_cast<size_t>(axis)];
      }
    }
    result.offset_of.push_back(offset);
  }
  return result;
}

// A guard behind every buffer shows writes past its end.
constexpr size_t kGuard = 256;
constexpr std::byte kDirt{0xa5};

struct Laid {
  Buffer physical;
  Physical place;
};

Laid LayOut(const Buffer& logical, const Layout& layout, bool fill) {
  Laid laid;
  laid.place = Place(layout, logical.dims);
  laid.physical.dtype = logical.dtype;
  const size_t size = static_cast<size_t>(DataTypeBits(logical.dtype) / 8);
  laid.physical.bytes.assign(static_cast<size_t>(laid.place.elements) * size + kGuard, kDirt);
  if (!fill) return laid;
  for (int64_t i = 0; i < laid.place.elements; ++i) WriteElement(laid.physical, i, 0);
  for (size_t i = 0; i < laid.place.offset_of.size(); ++i) {
    std::memcpy(laid.physical.bytes.data() + static_cast<size_t>(laid.place.offset_of[i]) * size,
                logical.bytes.data() + i * size, size);
  }
  return laid;
}

bool Same(const Buffer& a, int64_t i, const Buffer& b, int64_t j, double scale, double tolerance) {
  const double x = ElementAt(a, i), y = ElementAt(b, j);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (x == y) return true;
  if (!IsFloat(a.dtype) || std::isinf(x) || std::isinf(y)) return false;
  return std::fabs(x - y) <= tolerance * scale;
}

double Scale(const Buffer& buffer) {
  double scale = 1e-30;
  for (int64_t i = 0; i < Count(buffer.dims); ++i) {
    const double value = std::fabs(ElementAt(buffer, i));
    if (std::isfinite(value)) scale = std::max(scale, value);
  }
  return scale;
}

// Padding lanes hold 0.
std::string CheckPadding(const Laid& laid) {
  std::vector<bool> used(static_cast<size_t>(laid.place.elements));
  for (int64_t offset : laid.place.offset_of) used[static_cast<size_t>(offset)] = true;
  for (size_t i = 0; i < used.size(); ++i) {
    const double value = used[i] ? 0 : ElementAt(laid.physical, static_cast<int64_t>(i));
    if (value != 0) return fmt::format("padding element {} holds {}", i, value);
  }
  const auto end = laid.physical.bytes.end();
  if (!std::all_of(end - kGuard, end, [](std::byte b) { return b == kDirt; }))
    return "wrote past the end of a buffer";
  return "";
}

}  // namespace

double ElementAt(const Buffer& buffer, int64_t i) {
  switch (buffer.dtype) {
    case DataType::kF64:
      return Read<double>(buffer, i);
    case DataType::kF32:
      return static_cast<double>(Read<float>(buffer, i));
    case DataType::kF16:
      return static_cast<double>(HalfToFloat(Read<uint16_t>(buffer, i)));
    case DataType::kBF16:
      return static_cast<double>(Bfloat16ToFloat(Read<uint16_t>(buffer, i)));
    case DataType::kI64:
      return static_cast<double>(Read<int64_t>(buffer, i));
    case DataType::kU64:
      return static_cast<double>(Read<uint64_t>(buffer, i));
    case DataType::kI32:
      return Read<int32_t>(buffer, i);
    case DataType::kU32:
      return Read<uint32_t>(buffer, i);
    case DataType::kI16:
      return Read<int16_t>(buffer, i);
    case DataType::kU16:
      return Read<uint16_t>(buffer, i);
    case DataType::kI8:
      return Read<int8_t>(buffer, i);
    case DataType::kU8:
    case DataType::kBool:
      return Read<uint8_t>(buffer, i);
    default:
      return static_cast<double>(Float8ToFloat(buffer.dtype, Read<uint8_t>(buffer, i)));
  }
}

Buffer RandomBuffer(DataType dtype, std::vector<int64_t> dims, uint32_t seed, double low,
                    double high) {
  Buffer buffer{dtype, dims, {}};
  buffer.bytes.resize(static_cast<size_t>(Count(dims) * DataTypeBits(dtype) / 8));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> value(low, std::max(low, high));
  for (int64_t i = 0; i < Count(dims); ++i) {
    if (low > high) {
      const uint64_t bits = random();
      std::memcpy(buffer.bytes.data() + i * DataTypeBits(dtype) / 8, &bits,
                  static_cast<size_t>(DataTypeBits(dtype) / 8));
      if (dtype == DataType::kBool) Write(buffer, i, static_cast<uint8_t>(bits & 1));
      continue;
    }
    const bool zero = random() % 16 == 0;
    WriteElement(buffer, i, zero ? 0 : IsFloat(dtype) ? value(random) : std::floor(value(random)));
  }
  return buffer;
}

std::string CompareWithInterpreter(const loops::Function& function,
                                   const std::vector<Buffer>& inputs, SymbolTable& symbols,
                                   const CompareOptions& options) {
  // The interpreter's side.
  std::vector<Buffer> buffers = inputs;
  std::vector<int64_t> slots = options.slots;
  for (size_t i = inputs.size(); i < function.buffers.size(); ++i) {
    if (function.buffers[i].role != loops::BufferRole::kOutput) continue;
    Buffer buffer{function.buffers[i].dtype, {}, {}};
    for (loops::ExprId dim : function.buffers[i].dims) {
      buffer.dims.push_back(*loops::EvaluateExtent(function, dim, slots));
    }
    buffer.bytes.assign(static_cast<size_t>(Count(buffer.dims) * DataTypeBits(buffer.dtype) / 8),
                        std::byte{0});
    buffers.push_back(buffer);
  }
  std::vector<loops::BufferView> views;
  for (Buffer& buffer : buffers) views.push_back({buffer.bytes.data(), buffer.dims});
  const absl::Status expected = loops::Interpret(function, views, slots);

  // Machine code.
  auto builder = ModuleBuilder::Create(options.target);
  if (!builder.ok()) return builder.status().ToString();
  auto kernel =
      EmitLoops(**builder, options.target, function, symbols, options.vectorise, options.layouts);
  if (!kernel.ok()) return kernel.status().ToString();
  auto library = Library::Load(options.target, **builder, {*kernel});
  if (!library.ok()) return library.status().ToString();
  std::vector<Laid> laid;
  std::vector<void*> pointers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Layout layout = i < options.layouts.size() ? options.layouts[i] : Layout{};
    laid.push_back(LayOut(buffers[i], layout, i < inputs.size()));
  }
  for (Laid& one : laid) pointers.push_back(one.physical.bytes.data());
  auto evaluated = symbols.Evaluate(options.slots);
  std::vector<int64_t> all = options.slots;
  if (evaluated.ok() && evaluated->size() > all.size()) all = *evaluated;
  std::vector<std::byte> scratch(
      static_cast<size_t>(SymbolTable::ValueOf(kernel->scratch_bytes, all)), kDirt);
  pointers.push_back(scratch.data());
  const int64_t tasks = SymbolTable::ValueOf(kernel->tasks, all);
  const KernelFunction run = (*library)->Find(kernel->symbol);
  if (run == nullptr) return "no such symbol: " + kernel->symbol;
  int32_t code = 0;
  const int64_t cuts[] = {tasks, (tasks * 2 + 2) / 3, tasks / 3, 0};
  for (int i = 0; i < 3 && code == 0; ++i)
    code = run(pointers.data(), all.data(), cuts[i + 1], cuts[i]);

  if (code != 0) {
    const std::string& message = kernel->messages[static_cast<size_t>(code) - 1];
    if (MessageOf(expected).find(message) != std::string::npos) return "";
    return fmt::format("failed check `{}`, the interpreter said: {}", message, expected.ToString());
  }
  if (!expected.ok()) return fmt::format("ran, but the interpreter said: {}", expected.ToString());
  for (size_t i = inputs.size(); i < buffers.size(); ++i) {
    const Layout layout = i < options.layouts.size() ? options.layouts[i] : Layout{};
    const double scale = Scale(buffers[i]);
    for (size_t j = 0; j < laid[i].place.offset_of.size(); ++j) {
      const int64_t offset = laid[i].place.offset_of[j];
      if (Same(laid[i].physical, offset, buffers[i], static_cast<int64_t>(j), scale,
               options.tolerance))
        continue;
      return fmt::format("output {} element {}: got {}, the interpreter says {}", i - inputs.size(),
                         j, ElementAt(laid[i].physical, offset),
                         ElementAt(buffers[i], static_cast<int64_t>(j)));
    }
    const std::string defect = CheckPadding(laid[i]);
    if (!defect.empty()) return defect;
  }
  return "";
}

std::string CompareEverywhere(const loops::Function& function, const std::vector<Buffer>& inputs,
                              SymbolTable& symbols, std::vector<int64_t> slots, double tolerance) {
  std::vector<Target> targets = {HostTarget(), PlainTarget()};
  if (const std::optional<Target> foreign = ForeignShape()) targets.push_back(*foreign);
  for (const Target& target : targets) {
    for (bool vectorise : {false, true}) {
      CompareOptions options;
      options.target = target;
      options.vectorise = vectorise;
      options.slots = slots;
      options.tolerance = tolerance;
      const std::string difference = CompareWithInterpreter(function, inputs, symbols, options);
      if (!difference.empty()) {
        return fmt::format("{}, {}: {}\n{}", target.name, vectorise ? "scheduled" : "reference",
                           difference, loops::Print(function));
      }
    }
  }
  return "";
}

std::vector<std::string> UndefinedSymbols(const std::string& object) {
  std::vector<std::string> names;
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "object"));
  if (!file) return {"not an object file: " + llvm::toString(file.takeError())};
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    const uint32_t flags = llvm::cantFail(symbol.getFlags());
    const std::string name = llvm::cantFail(symbol.getName()).str();
    if ((flags & llvm::object::SymbolRef::SF_Undefined) != 0 && !name.empty())
      names.push_back(name);
  }
  return names;
}

}  // namespace quench::codegen
