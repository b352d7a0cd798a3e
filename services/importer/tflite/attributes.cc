#include "services/importer/tflite/attributes.h"

#include <flatbuffers/flexbuffers.h>
#include <flatbuffers/minireflect.h>

#include "common/base/status.h"
#include "services/importer/graph/names.h"

namespace quench::importer {
namespace {

// Takes the fields of one table of options, whatever table it is.
class FieldReader final : public flatbuffers::IterationVisitor {
 public:
  explicit FieldReader(Node& node) : node_(node) {}

  void StartSequence() override { ++depth_; }
  void EndSequence() override { --depth_; }
  void Field(size_t, size_t, flatbuffers::ElementaryType type, bool, const flatbuffers::TypeTable*,
             const char* name, const uint8_t* value) override {
    if (depth_ != 1) return;
    name_ = name;
    floats_ = type == flatbuffers::ET_FLOAT || type == flatbuffers::ET_DOUBLE;
    wanted_ = value != nullptr && type != flatbuffers::ET_SEQUENCE;
  }
  void StartVector() override {
    in_vector_ = true;
    ints_.clear();
    doubles_.clear();
  }
  void EndVector() override {
    in_vector_ = false;
    if (depth_ != 1 || !wanted_) return;
    if (floats_) {
      node_.attributes[name_] = doubles_;
    } else {
      node_.attributes[name_] = ints_;
    }
  }
  void UType(uint8_t value, const char*) override { Int64(value); }
  void Bool(bool value) override { Int64(value ? 1 : 0); }
  void Char(int8_t value, const char*) override { Int64(value); }
  void UChar(uint8_t value, const char*) override { Int64(value); }
  void Short(int16_t value, const char*) override { Int64(value); }
  void UShort(uint16_t value, const char*) override { Int64(value); }
  void Int(int32_t value, const char*) override { Int64(value); }
  void UInt(uint32_t value, const char*) override { Int64(value); }
  void Long(int64_t value) override { Int64(value); }
  void ULong(uint64_t value) override { Int64(static_cast<int64_t>(value)); }
  void Float(float value) override { Number(static_cast<double>(value)); }
  void Double(double value) override { Number(value); }
  void String(const flatbuffers::String* text) override {
    if (depth_ == 1 && wanted_ && !in_vector_) node_.attributes[name_] = Printable(text->str());
  }

 private:
  void Int64(int64_t value) {
    if (depth_ != 1 || !wanted_) return;
    if (in_vector_) {
      ints_.push_back(value);
    } else {
      node_.attributes[name_] = value;
    }
  }
  void Number(double value) {
    if (depth_ != 1 || !wanted_) return;
    if (in_vector_) {
      doubles_.push_back(value);
    } else {
      node_.attributes[name_] = value;
    }
  }

  Node& node_;
  int depth_ = 0;
  std::string name_;
  bool floats_ = false, wanted_ = false, in_vector_ = false;
  std::vector<int64_t> ints_;
  std::vector<double> doubles_;
};

// `union_table` lists the tables of a union by their numbers.
void AddTable(const flatbuffers::TypeTable* union_table, size_t number, const void* table,
              Node& node) {
  if (table == nullptr || number >= union_table->num_elems) return;
  const int reference = union_table->type_codes[number].sequence_ref;
  if (reference < 0) return;
  FieldReader reader(node);
  flatbuffers::IterateObject(static_cast<const uint8_t*>(table),
                             union_table->type_refs[reference](), &reader);
}

absl::Status AddCustom(const flatbuffers::Vector<uint8_t>& bytes, Node& node) {
  if (bytes.size() == 0) return absl::OkStatus();
  std::vector<uint8_t> seen;
  constexpr size_t kMost = 1 << 20;
  if (bytes.size() < 3 || bytes.size() > kMost ||
      !flexbuffers::VerifyBuffer(bytes.data(), bytes.size(), &seen))
    return InvalidArgument("its {} bytes of options are not a FlexBuffers map", bytes.size());
  const flexbuffers::Reference root = flexbuffers::GetRoot(bytes.data(), bytes.size());
  if (!root.IsMap())
    return InvalidArgument("its {} bytes of options are not a FlexBuffers map", bytes.size());
  const flexbuffers::Map map = root.AsMap();
  const auto keys = map.Keys();
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string name = Printable(keys[i].AsKey());
    const flexbuffers::Reference value = map.Values()[i];
    if (value.IsFloat()) {
      node.attributes[name] = value.AsDouble();
    } else if (value.IsBool() || value.IsIntOrUint()) {
      node.attributes[name] = value.IsBool() ? int64_t{value.AsBool()} : value.AsInt64();
    } else if (value.IsString()) {
      node.attributes[name] = Printable(value.AsString().str());
    }
  }
  return absl::OkStatus();
}

std::string Prefix(const char* side, size_t index) { return fmt::format("{}_{}.", side, index); }

}  // namespace

absl::Status AddOptions(const tflite::Operator& op, Node& node) {
  AddTable(tflite::BuiltinOptionsTypeTable(), static_cast<size_t>(op.builtin_options_type()),
           op.builtin_options(), node);
  AddTable(tflite::BuiltinOptions2TypeTable(), static_cast<size_t>(op.builtin_options_2_type()),
           op.builtin_options_2(), node);
  if (node.domain == "tflite.custom" && op.custom_options() != nullptr)
    return AddCustom(*op.custom_options(), node);
  return absl::OkStatus();
}

void AddScale(const char* side, size_t index, const TensorScale& scale, Node& node) {
  if (scale.scale.empty()) return;
  const std::string prefix = Prefix(side, index);
  node.attributes[prefix + "scale"] = scale.scale;
  node.attributes[prefix + "zero_point"] = scale.zero;
  if (scale.scale.size() > 1) node.attributes[prefix + "axis"] = scale.axis;
}

TensorScale ScaleOf(const Node& node, const char* side, size_t index) {
  const std::string prefix = Prefix(side, index);
  TensorScale result;
  result.scale = node.Floats(prefix + "scale");
  result.zero = node.Ints(prefix + "zero_point");
  result.axis = node.Int(prefix + "axis", 0);
  return result;
}

}  // namespace quench::importer
