// Our operator tables against libonnx's schemas: names exist and attributes agree.
#include <gtest/gtest.h>
#include <onnx/defs/schema.h>

#include <set>

#include "common/ops/op.h"
#include "services/importer/onnx/convert.h"

namespace quench::importer::schemas_test {
namespace {

// Operators of ONNX after opset 17, and previews that libonnx has dropped.
const std::set<std::string_view> kNewer = {"AffineGrid",     "Attention",
                                           "BitCast",        "BitwiseAnd",
                                           "BitwiseNot",     "BitwiseOr",
                                           "BitwiseXor",     "CausalConvWithState",
                                           "CenterCropPad",  "Col2Im",
                                           "CumProd",        "DeformConv",
                                           "Gelu",           "GroupNormalization",
                                           "ImageDecoder",   "LinearAttention",
                                           "Mish",           "RMSNormalization",
                                           "RegexFullMatch", "RotaryEmbedding",
                                           "StringConcat",   "StringSplit",
                                           "SwiGLU",         "Swish",
                                           "TensorScatter"};
const std::set<std::string_view> kPreviews = {"Affine", "Crop", "ImageScaler", "ScaledTanh"};

TEST(Schemas, EveryRowIsAnOperatorOfOnnx) {
  for (const OnnxOp& row : AllOnnxOps()) {
    if (!row.domain.empty() || kPreviews.contains(row.name)) continue;
    const bool known = ::onnx::OpSchemaRegistry::Schema(std::string(row.name)) != nullptr;
    EXPECT_EQ(known, !kNewer.contains(row.name)) << row.name;
  }
}

TEST(Schemas, EveryOperatorOfOnnxHasARow) {
  for (const ::onnx::OpSchema& schema : ::onnx::OpSchemaRegistry::get_all_schemas()) {
    if (!schema.domain().empty()) continue;
    EXPECT_NE(FindOnnxOp("", schema.Name()), nullptr) << schema.Name();
  }
}

ops::AttributeSpec::Kind KindOf(::onnx::AttributeProto::AttributeType type) {
  switch (type) {
    case ::onnx::AttributeProto::INT:
      return ops::AttributeSpec::kInt;
    case ::onnx::AttributeProto::FLOAT:
      return ops::AttributeSpec::kFloat;
    case ::onnx::AttributeProto::STRING:
      return ops::AttributeSpec::kString;
    case ::onnx::AttributeProto::INTS:
      return ops::AttributeSpec::kInts;
    case ::onnx::AttributeProto::FLOATS:
      return ops::AttributeSpec::kFloats;
    case ::onnx::AttributeProto::STRINGS:
      return ops::AttributeSpec::kStrings;
    case ::onnx::AttributeProto::GRAPH:
      return ops::AttributeSpec::kGraph;
    default:
      return ops::AttributeSpec::kTensor;
  }
}

// Attributes of libonnx's newest form must be known to the catalogue's operator, with the same
// kind. (It may have more: attributes of opsets after 17.)
TEST(Schemas, AttributesOfTheCatalogueAgree) {
  for (const ops::OpDef* op : ops::AllOps()) {
    const ::onnx::OpSchema* schema = ::onnx::OpSchemaRegistry::Schema(op->name);
    if (schema == nullptr || op->name.starts_with("q.")) continue;
    for (const auto& [name, attribute] : schema->attributes()) {
      if (op->name == "Constant") continue;  // becomes a constant on import
      // Moved to an input after opset 17.
      if (name == "axes" && op->name.starts_with("Reduce")) continue;
      if (name == "axis" && op->name == "DFT") continue;
      const auto own =
          std::find_if(op->attributes.begin(), op->attributes.end(),
                       [&](const ops::AttributeSpec& spec) { return spec.name == name; });
      if (own == op->attributes.end()) {
        ADD_FAILURE() << op->name << " does not take attribute " << name;
        continue;
      }
      EXPECT_EQ(own->kind, KindOf(attribute.type)) << op->name << "." << name;
    }
  }
}

TEST(Schemas, CanonicalOperatorsAreRowsOrOurOwn) {
  for (const ops::OpDef* op : ops::AllOps()) {
    EXPECT_TRUE(op->name.starts_with("q.") || FindOnnxOp("", op->name) != nullptr) << op->name;
  }
}

}  // namespace
}  // namespace quench::importer::schemas_test
