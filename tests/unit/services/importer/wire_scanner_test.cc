#include "services/importer/graph/wire_scanner.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "quench/onnx/v1/onnx.pb.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::wire_scanner_test {
namespace {

using onnx::v1::ModelProto;
using onnx::v1::TensorProto;
using testing::HasSubstr;

absl::StatusOr<std::string> Scan(const std::string& bytes, const ScanLimits& limits = {}) {
  return ScanMessage(std::as_bytes(std::span(bytes)), *ModelProto::descriptor(), limits);
}

ModelProto ModelWithTensor(size_t raw_bytes) {
  ModelProto model;
  model.set_ir_version(8);
  auto* tensor = model.mutable_graph()->add_initializer();
  tensor->set_name("w");
  tensor->add_dims(static_cast<int64_t>(raw_bytes));
  tensor->set_data_type(TensorProto::UINT8);
  tensor->set_raw_data(std::string(raw_bytes, 'x'));
  return model;
}

TEST(WireScanner, SmallModelsPassUnchanged) {
  ModelProto model = ModelWithTensor(4095);
  model.mutable_graph()->add_node()->set_op_type("Relu");
  const auto skeleton = Scan(model.SerializeAsString());
  ASSERT_TRUE(skeleton.ok()) << MessageOf(skeleton.status());
  ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(*skeleton));
  EXPECT_EQ(parsed.SerializeAsString(), model.SerializeAsString());
}

TEST(WireScanner, LargeTensorsStayInTheFile) {
  const std::string bytes = ModelWithTensor(4096).SerializeAsString();
  const auto skeleton = Scan(bytes);
  ASSERT_TRUE(skeleton.ok());
  EXPECT_LT(skeleton->size(), 100u);
  ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(*skeleton));
  const TensorProto& tensor = parsed.graph().initializer(0);
  EXPECT_FALSE(tensor.has_raw_data());
  ASSERT_EQ(tensor.stored_size(), 1);
  EXPECT_EQ(tensor.stored(0).field(), static_cast<uint32_t>(TensorProto::kRawDataFieldNumber));
  EXPECT_EQ(bytes.substr(tensor.stored(0).offset(), tensor.stored(0).size()),
            std::string(4096, 'x'));
}

TEST(WireScanner, PackedNumbersStayInTheFileToo) {
  ModelProto model = ModelWithTensor(0);
  for (int i = 0; i < 2000; ++i)
    model.mutable_graph()->mutable_initializer(0)->add_float_data(1.5f);
  const auto skeleton = Scan(model.SerializeAsString());
  ASSERT_TRUE(skeleton.ok());
  ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(*skeleton));
  EXPECT_EQ(parsed.graph().initializer(0).float_data_size(), 0);
  EXPECT_EQ(parsed.graph().initializer(0).stored(0).size(), 8000u);
}

TEST(WireScanner, OwnFieldsOfAFileAreDropped) {
  ModelProto model = ModelWithTensor(16);
  auto* chunk = model.mutable_graph()->mutable_initializer(0)->add_stored();
  chunk->set_offset(0);
  chunk->set_size(uint64_t{1} << 60);
  const auto skeleton = Scan(model.SerializeAsString());
  ASSERT_TRUE(skeleton.ok());
  ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(*skeleton));
  EXPECT_EQ(parsed.graph().initializer(0).stored_size(), 0);
}

TEST(WireScanner, UnknownFieldsAreSkipped) {
  std::string bytes = ModelWithTensor(8).SerializeAsString();
  bytes += "\xc2\x3e\x03xyz";   // field 1000, three bytes
  bytes += "\xc0\x3e\x96\x01";  // field 1000, a number
  const auto skeleton = Scan(bytes);
  ASSERT_TRUE(skeleton.ok()) << MessageOf(skeleton.status());
  EXPECT_EQ(skeleton->find("xyz"), std::string::npos);
}

TEST(WireScanner, AClaimOfThreeGigabytesIsRefusedWithItsOffset) {
  // graph { ... claims 3 GiB
  const std::string bytes = std::string("\x08\x08\x3a\x80\x80\x80\x80\x0c", 8) + "abc";
  const auto skeleton = Scan(bytes);
  ASSERT_FALSE(skeleton.ok());
  EXPECT_EQ(MessageOf(skeleton.status()),
            "offset 2: field `graph` of ModelProto claims 3221225472 bytes, 3 are left");
}

TEST(WireScanner, EveryTruncationIsRefusedOrParses) {
  const std::string whole = ModelWithTensor(5000).SerializeAsString();
  for (size_t size = 1; size < 60; ++size) {
    const auto skeleton = Scan(whole.substr(0, size));
    ModelProto parsed;
    if (skeleton.ok()) {
      EXPECT_TRUE(parsed.ParseFromString(*skeleton)) << size;
    }
  }
}

TEST(WireScanner, NestingIsBounded) {
  onnx::v1::TypeProto type;
  onnx::v1::TypeProto* inner = &type;
  for (int i = 0; i < 60; ++i) inner = inner->mutable_sequence_type()->mutable_elem_type();
  ModelProto model = ModelWithTensor(1);
  *model.mutable_graph()->add_input()->mutable_type() = type;
  const auto skeleton = Scan(model.SerializeAsString());
  ASSERT_FALSE(skeleton.ok());
  EXPECT_THAT(MessageOf(skeleton.status()), HasSubstr("messages are nested more than 96 deep"));
}

TEST(WireScanner, CountsAreBounded) {
  ModelProto model;
  for (int i = 0; i < 20; ++i) model.mutable_graph()->add_node()->add_input("x");
  ScanLimits limits;
  limits.messages = 10;
  EXPECT_THAT(MessageOf(Scan(model.SerializeAsString(), limits).status()),
              HasSubstr("more than 10 messages"));
  limits = {};
  limits.strings = 10;
  EXPECT_THAT(MessageOf(Scan(model.SerializeAsString(), limits).status()),
              HasSubstr("more than 10 strings"));
  limits = {};
  limits.skeleton_bytes = 30;
  EXPECT_EQ(Scan(model.SerializeAsString(), limits).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(WireScanner, WrongWireTypesNameTheField) {
  const std::string number_as_text = std::string("\x0a\x01", 2) + "x";  // ir_version as bytes
  EXPECT_THAT(MessageOf(Scan(number_as_text).status()),
              HasSubstr("`ir_version` of ModelProto has wire type 2"));
  const std::string text_as_number("\x10\x01", 2);  // producer_name as a number
  EXPECT_THAT(MessageOf(Scan(text_as_number).status()),
              HasSubstr("`producer_name` of ModelProto has wire type 0, it is 2"));
  const std::string group("\x0b", 1);
  EXPECT_THAT(MessageOf(Scan(group).status()), HasSubstr("offset 0: wire type 3"));
}

}  // namespace
}  // namespace quench::importer::wire_scanner_test
