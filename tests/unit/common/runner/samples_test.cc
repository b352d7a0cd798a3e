#include "common/runner/samples.h"

#include <gtest/gtest.h>
#include <zip.h>

#include <numeric>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "tests/support/matchers.h"

namespace quench::samples_test {
namespace {

using testing::HasSubstr;

ArtifactDim Fixed(int64_t size) { return {size, "", size, size}; }

// Rows of 3 that count up from 0.
Tensor Counting(const std::vector<int64_t>& dims) {
  Tensor tensor = Tensor::Zeros(DataType::kF32, dims);
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::Of(DataType::kF32, dims, values);
}

class SamplesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<TempDir>(*std::move(dir));
  }
  void Write(const std::string& name, const Tensor& tensor) {
    const std::filesystem::path path = dir_->path() / name;
    std::filesystem::create_directories(path.parent_path());
    ASSERT_TRUE(WriteNpy(tensor, path).ok());
  }
  absl::StatusOr<std::unique_ptr<Samples>> Open(const std::vector<ArtifactTensor>& inputs,
                                                const std::string& name = "") {
    return OpenSamples(dir_->path() / name, inputs, {}, {});
  }
  std::unique_ptr<TempDir> dir_;
  const std::vector<ArtifactTensor> one_ = {{"x", DataType::kF32, {Fixed(1), Fixed(3)}}};
};

TEST_F(SamplesTest, AFileIsASampleOrAsManyAsItHasRows) {
  Write("a.npy", Counting({1, 3}));
  Write("b.npy", Counting({4, 3}));
  Write("c.npy", Counting({3}));
  Write("notes.md.npy.txt", Counting({1}));
  const auto samples = Open(one_);
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ((*samples)->count(), 6);
  const auto third = (*samples)->Read(3);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->at(0).dims(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(third->at(0).FloatAt(0), 6);
  EXPECT_PRED1(HasSubstr("row 2 of `"), (*samples)->NameOf(3));
  const auto last = (*samples)->Read(5);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->at(0).dims(), (std::vector<int64_t>{1, 3}));
  EXPECT_PRED1(HasSubstr("c.npy"), (*samples)->NameOf(5));
}

TEST_F(SamplesTest, ASymbolicFirstAxisTakesFilesWhole) {
  Write("a.npy", Counting({4, 3}));
  const std::vector<ArtifactTensor> inputs = {{"x", DataType::kF32, {{-1, "n", 1, 8}, Fixed(3)}}};
  const auto samples = Open(inputs, "a.npy");
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ((*samples)->count(), 1);
  EXPECT_EQ((*samples)->Read(0)->at(0).dims(), (std::vector<int64_t>{4, 3}));
}

TEST_F(SamplesTest, SeveralInputsHaveAFolderForEachSample) {
  const std::vector<ArtifactTensor> inputs = {{"a/b", DataType::kF32, {Fixed(2)}},
                                              {"c", DataType::kF32, {Fixed(3)}}};
  Write("s1/a_b.npy", Counting({2}));
  Write("s1/c.npy", Counting({3}));
  Write("s2/input_0.npy", Counting({2}));
  Write("s2/input_1.npy", Counting({3}));
  const auto samples = Open(inputs);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ((*samples)->count(), 2);
  EXPECT_EQ((*samples)->Read(1)->at(1).dims(), (std::vector<int64_t>{3}));
  EXPECT_PRED1(HasSubstr("s2`"), (*samples)->NameOf(1));
}

TEST_F(SamplesTest, AFolderOfTestDataIsOneSampleOfInputsOrOutputs) {
  Write("input_0.npy", Counting({2}));
  Write("output_0.npy", Counting({3}));
  const std::vector<ArtifactTensor> inputs = {{"x", DataType::kF32, {Fixed(2)}}},
                                    outputs = {{"y", DataType::kF32, {Fixed(3)}}};
  const auto in = Open(inputs);
  ASSERT_TRUE(in.ok()) << in.status();
  EXPECT_EQ((*in)->count(), 1);
  SampleFormat format;
  format.what = "output";
  const auto out = OpenSamples(dir_->path(), outputs, format, {});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)->Read(0)->at(0).dims(), (std::vector<int64_t>{3}));
  const auto wrong = OpenSamples(dir_->path(), inputs, format, {});
  EXPECT_PRED1(HasSubstr("output `x` is f32[2]"), MessageOf(wrong.status()));
}

TEST_F(SamplesTest, ArchivesHaveAnArrayForEachInput) {
  const std::vector<ArtifactTensor> inputs = {{"a/b", DataType::kF32, {Fixed(1), Fixed(2)}},
                                              {"c", DataType::kF32, {Fixed(1), Fixed(3)}}};
  const auto archive = [&](const std::map<std::string, Tensor>& arrays) {
    const std::string path = (dir_->path() / "data.npz").string();
    zip_t* zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    std::vector<std::string> kept;
    kept.reserve(arrays.size());
    for (const auto& [name, tensor] : arrays) {
      EXPECT_TRUE(WriteNpy(tensor, dir_->path() / "one").ok());
      kept.push_back(*ReadFile(dir_->path() / "one"));
      zip_source_t* source = zip_source_buffer(zip, kept.back().data(), kept.back().size(), 0);
      zip_file_add(zip, (name + ".npy").c_str(), source, 0);
    }
    EXPECT_EQ(zip_close(zip), 0);
  };
  archive({{"a_b", Counting({4, 2})}, {"arr_1", Counting({4, 3})}, {"other", Counting({1})}});
  const auto samples = Open(inputs);
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ((*samples)->count(), 4);
  const auto third = (*samples)->Read(2);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->at(0).FloatAt(0), 4);
  EXPECT_EQ(third->at(1).FloatAt(0), 6);
  EXPECT_EQ((*samples)->NameOf(2), "row 2 of `data.npz`");
  archive({{"a_b", Counting({4, 2})}, {"d", Counting({4, 3})}});
  EXPECT_PRED1(HasSubstr("`data.npz` has no array of input `c`, but `a_b`, `d`"),
               MessageOf(Open(inputs).status()));
}

TEST_F(SamplesTest, AllThatDoNotFitAreTold) {
  Write("a.npy", Counting({1, 3}));
  Write("b.npy", Counting({1, 4}));
  Write("c.npy", Tensor::I64({1, 2, 3}));
  ASSERT_TRUE(WriteFileAtomically(dir_->path() / "d.npy", "junk").ok());
  ASSERT_TRUE(WriteFileAtomically(dir_->path() / "e.pb", "").ok());
  const auto samples = Open(one_);
  EXPECT_EQ(samples.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string text = MessageOf(samples.status());
  EXPECT_PRED1(HasSubstr("b.npy` is f32[1, 4], input `x` is f32[1, 3]"), text);
  EXPECT_PRED1(HasSubstr("c.npy` is i64[3]"), text);
  EXPECT_PRED1(HasSubstr("d.npy"), text);
  EXPECT_PRED1(HasSubstr("e.pb"), text);
}

TEST_F(SamplesTest, NoSamplesAreAnError) {
  EXPECT_PRED1(HasSubstr("no samples"), MessageOf(Open(one_).status()));
  EXPECT_EQ(Open(one_, "missing").status().code(), absl::StatusCode::kNotFound);
  const std::vector<ArtifactTensor> two = {one_[0], {"y", DataType::kF32, {}}};
  Write("a.npy", Counting({1, 3}));
  EXPECT_PRED1(HasSubstr("2 inputs"), MessageOf(Open(two).status()));
  Write("s/x.npy", Counting({1, 3}));
  EXPECT_PRED1(HasSubstr("none of y.npy, y.pb, input_1.npy, input_1.pb"),
               MessageOf(Open(two).status()));
}

// As clients send those of .pb: after them, for locally .npy goes first too.
TEST_F(SamplesTest, ConvertedTensorsAreFoundByTheirInputs) {
  const std::vector<ArtifactTensor> two = {one_[0], {"y", DataType::kF32, {}}};
  Write("s/input_0.pb.npy", Counting({1, 3}));
  Write("s/y.pb.npy", Counting({}));
  Write("t/x.npy", Counting({2, 3}));
  Write("t/x.pb.npy", Counting({1, 4}));
  Write("t/y.npy", Counting({}));
  EXPECT_EQ(MessageOf(Open(two).status()),
            "`t/y.npy` has 1 samples of input `y`, `t/x.npy` 2 of input `x`");
  std::filesystem::remove_all(dir_->path() / "t");
  EXPECT_EQ((*Open(two))->count(), 1);
}

TEST_F(SamplesTest, RandomOnesAreTheSameAgain) {
  const auto samples = MakeRandomSamples(2, 5, one_);
  EXPECT_EQ(samples->count(), 2);
  EXPECT_EQ(RelativeError(samples->Read(1)->at(0), samples->Read(1)->at(0)), 0);
  EXPECT_NE(RelativeError(samples->Read(0)->at(0), samples->Read(1)->at(0)), 0);
}

}  // namespace
}  // namespace quench::samples_test
