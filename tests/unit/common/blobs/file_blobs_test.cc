#include "common/blobs/file_blobs.h"

#include <gtest/gtest.h>

#include "common/blobs/digest.h"
#include "tests/support/matchers.h"

namespace quench::file_blobs_test {
namespace {

using quench::testing::HasSubstr;

class FileBlobsTest : public ::testing::Test {
 protected:
  std::filesystem::path Write(const std::string& name, const std::string& contents) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, contents).ok());
    return folder_.path() / name;
  }
  TempDir folder_ = *TempDir::Create();
  FileBlobs files_;
};

TEST_F(FileBlobsTest, GivesTheBytesOfAFileByItsDigest) {
  const std::string contents(3'000'000, 'x');
  std::vector<int64_t> reported;
  const StepContext step(std::make_shared<CancelToken>(), [&](const Progress& progress) {
    EXPECT_EQ(progress.total, 3'000'000);
    reported.push_back(progress.done);
  });
  const auto id = files_.Add(Write("model", contents), step);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->hash, Sha256Hex(contents));
  EXPECT_EQ(reported, (std::vector<int64_t>{1 << 20, 2 << 20, 3'000'000}));
  const auto reader = files_.OpenReader(*id);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), contents.size());
  std::string back(5, 0);
  ASSERT_TRUE((*reader)->ReadAt(2'999'995, std::as_writable_bytes(std::span(back))).ok());
  EXPECT_EQ(back, "xxxxx");
  EXPECT_TRUE(files_.CheckUnchanged().ok());
  EXPECT_TRUE(files_.Add(Write("empty", ""), {}).ok());
}

TEST_F(FileBlobsTest, WhatIsNoFileOrChangesIsRefused) {
  EXPECT_EQ(files_.Add(folder_.path() / "none", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.Add(folder_.path(), {}).status().code(), absl::StatusCode::kInvalidArgument);
  const std::filesystem::path pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(files_.Add(pipe, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(files_.OpenReader({Sha256Hex("other"), 5}).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(files_.Add(Write("model", "first"), {}).ok());
  Write("model", "other");
  const absl::Status changed = files_.CheckUnchanged();
  EXPECT_EQ(changed.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(changed.message()), HasSubstr("model` changed while it was read"));
  const StepContext cancelled;
  cancelled.cancel_token()->Cancel();
  EXPECT_EQ(files_.Add(Write("more", "x"), cancelled).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(FileBlobsTest, AWriterMakesAFileOfTheRightBytesOnly) {
  const std::string contents = std::string(300'000, 'x') + "end";
  const BlobId id{Sha256Hex(contents), contents.size()};
  const std::filesystem::path path = Write("library", "the one before");
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(folder_.path()), {});
  };
  for (const std::string& wrong : {contents + "x", std::string("short")}) {
    auto writer = FileBlobWriter::Create(path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append(std::as_bytes(std::span(wrong))).ok());
    EXPECT_EQ((*writer)->CommitAs(id).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE((*writer)->CommitAs(id).ok());
    writer->reset();
    EXPECT_EQ(*ReadFile(path), "the one before");
    EXPECT_EQ(entries(), 1);
  }
  const auto writer = FileBlobWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(std::as_bytes(std::span(contents)).first(200'000)).ok());
  ASSERT_TRUE((*writer)->Append(std::as_bytes(std::span(contents)).subspan(200'000)).ok());
  EXPECT_EQ((*writer)->size(), contents.size());
  EXPECT_EQ((*writer)->CommitAs(id), absl::OkStatus());
  EXPECT_EQ(*ReadFile(path), contents);
  EXPECT_EQ(entries(), 1);
  EXPECT_FALSE((*writer)->Append(std::as_bytes(std::span(contents))).ok());
}

}  // namespace
}  // namespace quench::file_blobs_test
