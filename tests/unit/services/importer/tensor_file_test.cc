#include "services/importer/onnx/tensor_file.h"

#include <gtest/gtest.h>

#include "common/base/half.h"
#include "common/base/status.h"
#include "services/importer/onnx/tensor_data.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::tensor_file_test {
namespace {

using onnx::v1::TensorProto;
using testing::ElementsAre;
using testing::HasSubstr;

TensorProto Proto(DataType dtype, const std::vector<int64_t>& dims) {
  TensorProto proto;
  proto.set_data_type(static_cast<int>(dtype));
  for (const int64_t dim : dims) proto.add_dims(dim);
  return proto;
}

std::string ReadError(const TensorProto& proto) {
  return testing::ErrorOf(ReadTensor(proto, {}).status());
}

TEST(TensorFile, WritesWhatItReads) {
  testing::ImportFolder folder;
  const std::filesystem::path path = folder.path() / "x.pb";
  std::vector<float> values(3000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5f;
  for (const Tensor& tensor :
       {testing::F32({30, 100}, values), Tensor::I64({1, -2, 3}), Tensor::ScalarF32(7),
        Tensor::Strings({2}, {"a", ""}), Tensor::Zeros(DataType::kI4, {3}),
        Tensor::Zeros(DataType::kF32, {0, 4})}) {
    ASSERT_TRUE(WriteTensorProto(tensor, "x", path).ok());
    const absl::StatusOr<Tensor> read = ReadTensorProto(path);
    ASSERT_TRUE(read.ok()) << MessageOf(read.status());
    EXPECT_EQ(read->dtype(), tensor.dtype());
    EXPECT_EQ(read->dims(), tensor.dims());
    if (tensor.dtype() == DataType::kString) {
      EXPECT_EQ(read->strings(), tensor.strings());
    } else {
      EXPECT_TRUE(std::equal(read->bytes().begin(), read->bytes().end(), tensor.bytes().begin(),
                             tensor.bytes().end()));
    }
  }
}

TEST(TensorFile, ReadsEveryDataField) {
  TensorProto halves = Proto(DataType::kF16, {2});
  halves.add_int32_data(FloatToHalf(1.5f));
  halves.add_int32_data(FloatToHalf(-2.0f));
  EXPECT_EQ(ReadTensor(halves, {})->FloatAt(1), -2.0);

  TensorProto bytes = Proto(DataType::kI8, {2});
  bytes.add_int32_data(-3);
  bytes.add_int32_data(4);
  EXPECT_THAT(ReadTensor(bytes, {})->ToInts(), ElementsAre(-3, 4));

  TensorProto unsigned_longs = Proto(DataType::kU32, {1});
  unsigned_longs.add_uint64_data(4000000000u);
  EXPECT_THAT(ReadTensor(unsigned_longs, {})->ToInts(), ElementsAre(4000000000));

  TensorProto doubles = Proto(DataType::kF64, {1});
  doubles.add_double_data(0.1);
  EXPECT_EQ(ReadTensor(doubles, {})->FloatAt(0), 0.1);

  TensorProto nibbles = Proto(DataType::kI4, {3});
  nibbles.add_int32_data(0x7f);  // low nibble first: -1, 7
  nibbles.add_int32_data(0x08);  // -8
  EXPECT_THAT(ReadTensor(nibbles, {})->ToInts(), ElementsAre(-1, 7, -8));

  TensorProto complex = Proto(DataType::kC64, {1});
  complex.add_float_data(1);
  complex.add_float_data(2);
  EXPECT_EQ(ReadTensor(complex, {})->bytes().size(), 8u);

  TensorProto bools = Proto(DataType::kBool, {2});
  bools.set_raw_data(std::string("\x02\x00", 2));
  EXPECT_THAT(ReadTensor(bools, {})->ToInts(), ElementsAre(1, 0));
}

TEST(TensorFile, LargePackedNumbersAreDecodedFromTheFile) {
  testing::ImportFolder folder;
  TensorProto proto = Proto(DataType::kI64, {3000});
  for (int i = 0; i < 3000; ++i) proto.add_int64_data(i % 2 == 0 ? i : -i);
  const absl::StatusOr<Tensor> read =
      ReadTensorProto(folder.Write("x.pb", proto.SerializeAsString()));
  ASSERT_TRUE(read.ok()) << MessageOf(read.status());
  EXPECT_EQ(read->IntAt(2999), -2999);
  EXPECT_EQ(read->IntAt(2998), 2998);
}

TEST(TensorFile, SizesMustAgree) {
  TensorProto proto = Proto(DataType::kF32, {2, 3});
  EXPECT_EQ(ReadError(proto), "has 0 numbers of data, f32 of 6 elements takes 6");
  proto.set_raw_data("1234");
  EXPECT_EQ(ReadError(proto), "has 4 bytes of data, f32 of 6 elements takes 24");
  TensorProto strings = Proto(DataType::kString, {2});
  strings.add_string_data("a");
  EXPECT_EQ(ReadError(strings), "has 1 strings of data, string of 2 elements takes 2");
}

TEST(TensorFile, AbsurdHeadersAllocateNothing) {
  EXPECT_THAT(ReadError(Proto(DataType::kF32, {int64_t{1} << 40, int64_t{1} << 40})),
              HasSubstr("which no memory holds"));
  EXPECT_THAT(ReadError(Proto(DataType::kF32, {-1})), HasSubstr("which no memory holds"));
  EXPECT_THAT(ReadError(Proto(DataType::kF32, {int64_t{1} << 50})), HasSubstr("has 0 numbers"));
  EXPECT_THAT(ReadError(Proto(DataType::kF32, std::vector<int64_t>(65, 1))),
              HasSubstr("has rank 65"));
  EXPECT_THAT(ReadError(Proto(DataType::kUndefined, {1})), HasSubstr("has no data type"));
  TensorProto six_bits = Proto(DataType::kF32, {1});
  six_bits.set_data_type(27);
  EXPECT_EQ(ReadTensor(six_bits, {}).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(TensorFile, SparseTensorsBecomeDense) {
  onnx::v1::SparseTensorProto sparse;
  *sparse.mutable_values() = Proto(DataType::kF32, {2});
  sparse.mutable_values()->add_float_data(5);
  sparse.mutable_values()->add_float_data(6);
  *sparse.mutable_indices() = Proto(DataType::kI64, {2, 2});
  for (const int64_t index : {0, 1, 1, 2}) sparse.mutable_indices()->add_int64_data(index);
  sparse.add_dims(2);
  sparse.add_dims(3);
  const absl::StatusOr<Tensor> dense = ReadSparseTensor(sparse, {});
  ASSERT_TRUE(dense.ok()) << MessageOf(dense.status());
  EXPECT_THAT(dense->as<float>(), ElementsAre(0, 5, 0, 0, 0, 6));
  sparse.mutable_indices()->set_int64_data(3, 3);
  EXPECT_THAT(MessageOf(ReadSparseTensor(sparse, {}).status()),
              HasSubstr("sparse index 3 is outside of [0, 3)"));
  sparse.set_dims(0, int64_t{1} << 40);
  EXPECT_EQ(ReadSparseTensor(sparse, {}).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace quench::importer::tensor_file_test
