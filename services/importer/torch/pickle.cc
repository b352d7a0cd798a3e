#include "services/importer/torch/pickle.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "common/base/printable.h"
#include "common/base/status.h"

namespace quench::importer {
namespace {

constexpr size_t kMaxValues = size_t{64} << 20;
constexpr size_t kMaxStack = size_t{16} << 20;

// Everything that a pickle of PyTorch may name. Names that begin with `__torch__.` are classes whose
// code the archive has as text.
constexpr std::string_view kGlobals[] = {
    "collections.OrderedDict",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._tensor._rebuild_from_type_v2",
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
    "torch.Size",
    "torch.device",
    "torch.jit._pickle.build_boollist",
    "torch.jit._pickle.build_doublelist",
    "torch.jit._pickle.build_intlist",
    "torch.jit._pickle.build_tensor_from_id",
    "torch.jit._pickle.build_tensorlist",
    "torch.jit._pickle.restore_type_tag",
    "torch.per_channel_affine",
    "torch.per_tensor_affine",
    "torch.serialization._get_layout",
    "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage",
    "torch.storage._load_from_bytes",
};

constexpr std::string_view kTorchTypes[] = {"BFloat16Storage",
                                            "BoolStorage",
                                            "ByteStorage",
                                            "CharStorage",
                                            "ComplexDoubleStorage",
                                            "ComplexFloatStorage",
                                            "DoubleStorage",
                                            "FloatStorage",
                                            "HalfStorage",
                                            "IntStorage",
                                            "LongStorage",
                                            "QInt32Storage",
                                            "QInt8Storage",
                                            "QUInt8Storage",
                                            "ShortStorage",
                                            "bfloat16",
                                            "bool",
                                            "complex128",
                                            "complex64",
                                            "float16",
                                            "float32",
                                            "float64",
                                            "int16",
                                            "int32",
                                            "int64",
                                            "int8",
                                            "qint32",
                                            "qint8",
                                            "quint8",
                                            "strided",
                                            "uint16",
                                            "uint32",
                                            "uint64",
                                            "uint8",
                                            "float8_e4m3fn",
                                            "float8_e5m2",
                                            "float8_e4m3fnuz",
                                            "float8_e5m2fnuz",
                                            "quint4x2"};

bool IsData(std::string_view name) {
  if (name.starts_with("__torch__.")) return true;
  if (std::find(std::begin(kGlobals), std::end(kGlobals), name) != std::end(kGlobals)) return true;
  constexpr std::string_view kTorch = "torch.";
  return name.starts_with(kTorch) && std::find(std::begin(kTorchTypes), std::end(kTorchTypes),
                                               name.substr(kTorch.size())) != std::end(kTorchTypes);
}

}  // namespace

const std::string& Pickled::Callee() const {
  static const std::string kNobody;
  return kind == Pickled::Kind::kObject ? items[0]->text : kNobody;
}

const Pickled* Pickled::Find(std::string_view key) const {
  if (kind != Pickled::Kind::kDict) return nullptr;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->kind == Pickled::Kind::kText && items[i]->text == key) return items[i + 1];
  }
  return nullptr;
}

class PickleReader {
 public:
  explicit PickleReader(std::span<const std::byte> bytes)
      : bytes_(bytes), file_(std::make_shared<PickleFile>()) {}

  absl::StatusOr<std::shared_ptr<const PickleFile>> Read() {
    while (!done_) {
      if (at_ >= bytes_.size()) return Damaged("ends before its end");
      const auto op = static_cast<unsigned char>(bytes_[at_++]);
      QUENCH_RETURN_IF_ERROR(Step(op));
      if (!problem_.ok()) return problem_;
      if (file_->values_.size() > kMaxValues || stack_.size() > kMaxStack)
        return absl::ResourceExhaustedError(
            fmt::format("the pickle has more than {} values", kMaxValues));
    }
    return std::shared_ptr<const PickleFile>(file_);
  }

 private:
  absl::Status Damaged(const std::string& what) const {
    return InvalidArgument("the pickle is damaged at byte {}: it {}", at_, what);
  }

  // ---- Bytes: what is missing becomes `problem_` ----
  std::string_view Take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      if (problem_.ok()) problem_ = Damaged("is cut off");
      at_ = bytes_.size();
      return {};
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += static_cast<size_t>(count);
    return text;
  }
  uint64_t Unsigned(size_t width) {
    const std::string_view text = Take(width);
    uint64_t value = 0;
    if (!text.empty()) std::memcpy(&value, text.data(), width);
    return value;
  }
  std::string_view Line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_,
                                bytes_.size() - at_);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) {
      if (problem_.ok()) problem_ = Damaged("is cut off");
      return {};
    }
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // ---- The stack; null is a mark ----
  Pickled* New(Pickled::Kind kind) {
    file_->values_.emplace_back();
    file_->values_.back().kind = kind;
    return &file_->values_.back();
  }
  Pickled* Push(Pickled::Kind kind) {
    stack_.push_back(New(kind));
    return stack_.back();
  }
  void PushText(std::string_view text) { Push(Pickled::Kind::kText)->text = std::string(text); }
  void PushInt(int64_t number) { Push(Pickled::Kind::kInt)->number = number; }
  Pickled* Pop() {
    if (stack_.empty() || stack_.back() == nullptr) {
      if (problem_.ok()) problem_ = Damaged("takes more values than it has");
      return New(Pickled::Kind::kNone);
    }
    Pickled* top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Pickled* Top() {
    Pickled* top = Pop();
    stack_.push_back(top);
    return top;
  }
  std::vector<const Pickled*> PopToMark() {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), nullptr);
    if (mark == stack_.rend()) {
      if (problem_.ok()) problem_ = Damaged("has no mark where one was expected");
      return {};
    }
    const auto first = mark.base();
    std::vector<const Pickled*> items(first, stack_.end());
    stack_.erase(first - 1, stack_.end());
    return items;
  }
  void PushTuple(std::vector<const Pickled*> items) {
    Push(Pickled::Kind::kTuple)->items = std::move(items);
  }
  void PushGlobal(std::string_view module, std::string_view name) {
    const std::string full = std::string(module) + "." + std::string(name);
    if (!IsData(full)) {
      if (problem_.ok())
        problem_ =
            InvalidArgument("the pickle names `{}`, which is code and not data", Printable(full));
      return;
    }
    Push(Pickled::Kind::kGlobal)->text = full;
  }
  void Append(Pickled::Kind kind, const std::vector<const Pickled*>& items) {
    Pickled* target = Top();
    if (target->kind == Pickled::Kind::kObject && target->Callee() == "collections.OrderedDict" &&
        kind == Pickled::Kind::kDict) {
      target->kind = Pickled::Kind::kDict;  // it was empty
      target->items.clear();
    }
    if (target->kind != kind) {
      if (problem_.ok()) problem_ = Damaged("appends to what is not a list or dict");
      return;
    }
    target->items.insert(target->items.end(), items.begin(), items.end());
  }
  void PushObject(Pickled* callee, Pickled* arguments) {
    if (callee->kind != Pickled::Kind::kGlobal || arguments->kind != Pickled::Kind::kTuple) {
      if (problem_.ok()) problem_ = Damaged("calls what is not a known class or function");
      return;
    }
    if (callee->text == "collections.OrderedDict" && arguments->items.empty()) {
      Push(Pickled::Kind::kDict);
      return;
    }
    Push(Pickled::Kind::kObject)->items = {callee, arguments};
  }

  absl::Status PushLong(std::string_view bytes) {
    if (bytes.size() > 8) return Damaged("has an integer of more than 64 bits");
    int64_t value = 0;
    if (!bytes.empty()) {
      if (static_cast<signed char>(bytes.back()) < 0) value = -1;
      std::memcpy(&value, bytes.data(), bytes.size());
    }
    PushInt(value);
    return absl::OkStatus();
  }
  absl::Status PushDecimal(std::string_view text) {
    if (text.ends_with('L')) text.remove_suffix(1);
    if (text == "00" || text == "01") {
      Push(Pickled::Kind::kBool)->number = text == "01" ? 1 : 0;
      return absl::OkStatus();
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      return Damaged("has a number that is none");
    PushInt(value);
    return absl::OkStatus();
  }
  void Get(uint64_t key) {
    const auto found = memo_.find(key);
    if (found != memo_.end()) return stack_.push_back(found->second);
    if (problem_.ok()) problem_ = Damaged("reads what it has not stored");
  }

  absl::Status Step(unsigned char op);
  absl::Status StepRare(unsigned char op);
  absl::Status Build();

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool done_ = false;
  absl::Status problem_;
  std::shared_ptr<PickleFile> file_;
  std::vector<Pickled*> stack_;
  std::unordered_map<uint64_t, Pickled*> memo_;
};

absl::Status PickleReader::Build() {
  Pickled* state = Pop();
  Pickled* object = Top();
  // The entry that Python adds to an ordered dict of parameters (`_metadata`) says nothing here.
  if (object->kind == Pickled::Kind::kDict) return absl::OkStatus();
  if (object->kind != Pickled::Kind::kObject)
    return Damaged("gives a state to what is not an object");
  object->state = state;
  return absl::OkStatus();
}

absl::Status PickleReader::Step(unsigned char op) {
  switch (op) {
    case 0x80:  // PROTO
      if (const uint64_t protocol = Unsigned(1); protocol > 5)
        return InvalidArgument("the pickle is of protocol {}, 0 to 5 are read", protocol);
      return absl::OkStatus();
    case '.':  // STOP
      file_->root_ = Pop();
      done_ = true;
      return absl::OkStatus();
    case '(':
      stack_.push_back(nullptr);
      return absl::OkStatus();
    case 'N':
      Push(Pickled::Kind::kNone);
      return absl::OkStatus();
    case 0x88:
    case 0x89:
      Push(Pickled::Kind::kBool)->number = op == 0x88 ? 1 : 0;
      return absl::OkStatus();
    case 'K':
      PushInt(static_cast<int64_t>(Unsigned(1)));
      return absl::OkStatus();
    case 'M':
      PushInt(static_cast<int64_t>(Unsigned(2)));
      return absl::OkStatus();
    case 'J':
      PushInt(static_cast<int32_t>(Unsigned(4)));
      return absl::OkStatus();
    case 0x8a:
      return PushLong(Take(Unsigned(1)));
    case 'G': {
      uint64_t bits = Unsigned(8);
      uint64_t swapped = 0;
      for (int i = 0; i < 8; ++i, bits >>= 8) swapped = swapped << 8 | (bits & 0xff);
      Push(Pickled::Kind::kFloat)->real = std::bit_cast<double>(swapped);
      return absl::OkStatus();
    }
    case 'X':
    case 'T':
    case 'B':
      PushText(Take(Unsigned(4)));
      return absl::OkStatus();
    case 0x8c:
    case 'U':
    case 'C':
      PushText(Take(Unsigned(1)));
      return absl::OkStatus();
    case 0x8d:
    case 0x8e:
      PushText(Take(Unsigned(8)));
      return absl::OkStatus();
    case ']':
      Push(Pickled::Kind::kList);
      return absl::OkStatus();
    case '}':
      Push(Pickled::Kind::kDict);
      return absl::OkStatus();
    case ')':
      Push(Pickled::Kind::kTuple);
      return absl::OkStatus();
    case 't':
      PushTuple(PopToMark());
      return absl::OkStatus();
    case 0x85:
    case 0x86:
    case 0x87: {
      std::vector<const Pickled*> items(op - 0x84u);
      for (size_t i = items.size(); i-- > 0;) items[i] = Pop();
      PushTuple(std::move(items));
      return absl::OkStatus();
    }
    default:
      return StepRare(op);
  }
}

absl::Status PickleReader::StepRare(unsigned char op) {
  switch (op) {
    case 'c': {
      const std::string_view module = Line(), name = Line();
      PushGlobal(module, name);
      return absl::OkStatus();
    }
    case 0x93: {  // STACK_GLOBAL
      const Pickled* name = Pop();
      const Pickled* module = Pop();
      PushGlobal(module->text, name->text);
      return absl::OkStatus();
    }
    case 'R':
    case 0x81: {  // REDUCE, NEWOBJ
      Pickled* arguments = Pop();
      PushObject(Pop(), arguments);
      return absl::OkStatus();
    }
    case 'b':
      return Build();
    case 'Q': {
      const Pickled* id = Pop();
      Push(Pickled::Kind::kPersistent)->items = {id};
      return absl::OkStatus();
    }
    case 'a': {
      const Pickled* item = Pop();
      Append(Pickled::Kind::kList, {item});
      return absl::OkStatus();
    }
    case 'e':
      Append(Pickled::Kind::kList, PopToMark());
      return absl::OkStatus();
    case 's': {
      const Pickled* value = Pop();
      const Pickled* key = Pop();
      Append(Pickled::Kind::kDict, {key, value});
      return absl::OkStatus();
    }
    case 'u': {
      const std::vector<const Pickled*> items = PopToMark();
      if (items.size() % 2 != 0) return Damaged("has a key without a value");
      Append(Pickled::Kind::kDict, items);
      return absl::OkStatus();
    }
    case 'q':
      memo_[Unsigned(1)] = Top();
      return absl::OkStatus();
    case 'r':
      memo_[Unsigned(4)] = Top();
      return absl::OkStatus();
    case 0x94:
      memo_[memo_.size()] = Top();
      return absl::OkStatus();
    case 'h':
      Get(Unsigned(1));
      return absl::OkStatus();
    case 'j':
      Get(Unsigned(4));
      return absl::OkStatus();
    case '0':
      Pop();
      return absl::OkStatus();
    case '1':
      PopToMark();
      return absl::OkStatus();
    case '2':
      stack_.push_back(Top());
      return absl::OkStatus();
    case 0x95:  // FRAME: its size
      Unsigned(8);
      return absl::OkStatus();
    case 'l':
      Push(Pickled::Kind::kList)->items = PopToMark();
      return absl::OkStatus();
    case 'd':
      Push(Pickled::Kind::kDict)->items = PopToMark();
      return absl::OkStatus();
    case 'I':
    case 'L':
      return PushDecimal(Line());
    case 0x8b:
      return PushLong(Take(Unsigned(4)));
    default:
      return Damaged(fmt::format("has the operation {:#04x}, which PyTorch does not write", op));
  }
}

absl::StatusOr<std::shared_ptr<const PickleFile>> ReadPickle(std::span<const std::byte> bytes) {
  return PickleReader(bytes).Read();
}

}  // namespace quench::importer
