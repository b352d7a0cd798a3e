#include "services/codegen/link/link.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/codegen/object/weight_section.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen::link_test {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

absl::Status WriteObject(const std::filesystem::path& path, const Target& target,
                         const std::vector<std::string>& entries) {
  QUENCH_ASSIGN_OR_RETURN(const auto writer, WeightsWriter::Create(path, target));
  for (const std::string& entry : entries) {
    QUENCH_RETURN_IF_ERROR(writer->Begin().status());
    QUENCH_RETURN_IF_ERROR(writer->Append(BytesOf(entry)));
  }
  return writer->Finish();
}

TEST(WeightsTest, EntriesBeginAtMultiplesOf64) {
  const TempDir folder = *TempDir::Create();
  const Target target = (*ResolveTarget("x86-64-v2"))[0];
  const auto writer = *WeightsWriter::Create(folder.path() / "w.o", target);
  const std::string large(3 << 20, 'x');
  EXPECT_EQ(*writer->Begin(), 0u);
  ASSERT_TRUE(writer->Append(BytesOf("abc")).ok());
  EXPECT_EQ(*writer->Begin(), 64u);
  ASSERT_TRUE(writer->Append(BytesOf(large)).ok());
  ASSERT_TRUE(writer->Append(BytesOf("tail")).ok());
  EXPECT_EQ(*writer->Begin(), 64 + (3u << 20) + 64);
  ASSERT_TRUE(writer->Append(BytesOf("end")).ok());
  ASSERT_TRUE(writer->Finish().ok());

  const auto file = *FileMapping::Open(folder.path() / "w.o");
  const auto* bytes = reinterpret_cast<const char*>(file->bytes().data());
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  EXPECT_EQ(header.e_machine, EM_X86_64);
  Elf64_Shdr section;
  std::memcpy(&section, bytes + header.e_shoff + sizeof section, sizeof section);
  EXPECT_EQ(section.sh_size, writer->size());
  EXPECT_EQ(std::string(bytes + section.sh_offset, 3), "abc");
  EXPECT_EQ(std::string(bytes + section.sh_offset + 64 + (3 << 20), 4), "tail");
}

// Linkers refuse to mix 32-bit Arm objects whose flags differ (Arm's ELF specification, "ELF header").
TEST(WeightsTest, ObjectsOfArmStateHowFloatsArePassed) {
  const TempDir folder = *TempDir::Create();
  const auto flags_of = [&](const char* name) {
    EXPECT_TRUE(WriteObject(folder.path() / "w.o", (*ResolveTarget(name))[0], {"one"}).ok());
    const std::string bytes = *ReadFile(folder.path() / "w.o");
    Elf32_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    EXPECT_EQ(header.e_machine, EM_ARM);
    return header.e_flags;
  };
  EXPECT_EQ(flags_of("armv7"), 0x05000400u);
  EXPECT_EQ(flags_of("armv7-softfp"), 0x05000200u);
}

TEST(LinkTest, WeightsOfEveryTargetLink) {
  for (const TargetName& name : TargetNames()) {
    const TempDir folder = *TempDir::Create();
    const Target target = (*ResolveTarget(name.name))[0];
    ASSERT_TRUE(WriteObject(folder.path() / "w.o", target, {"one", "two"}).ok());
    const absl::Status shared =
        LinkShared(target, {folder.path() / "w.o"}, "w.so", folder.path() / "w.so");
    EXPECT_TRUE(shared.ok()) << name.name << ": " << shared;
    const absl::Status partial =
        LinkRelocatable(target, {folder.path() / "w.o"}, folder.path() / "r.o");
    EXPECT_TRUE(partial.ok()) << name.name << ": " << partial;
    EXPECT_TRUE(
        WriteArchive(folder.path() / "r.o", "model.o", "quench_model_query", folder.path() / "m.a")
            .ok());
    EXPECT_EQ(ReadFile(folder.path() / "m.a")->substr(0, 9), "!<arch>\n/");
  }
}

TEST(LinkTest, ComplaintsBecomeTheErrorAndTheLinkerGoesOn) {
  const TempDir folder = *TempDir::Create();
  const Target target = (*ResolveTarget("x86-64-v2"))[0];
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "bad.o", "not an object").ok());
  const absl::Status bad =
      LinkShared(target, {folder.path() / "bad.o"}, "x.so", folder.path() / "x.so");
  EXPECT_FALSE(bad.ok());
  EXPECT_NE(MessageOf(bad).find("bad.o"), std::string::npos) << bad;
  ASSERT_TRUE(WriteObject(folder.path() / "w.o", target, {"one"}).ok());
  EXPECT_TRUE(LinkShared(target, {folder.path() / "w.o"}, "w.so", folder.path() / "w.so").ok());
}

TEST(LinkTest, ThreadsTakeTurns) {
  const TempDir folder = *TempDir::Create();
  const Target target = (*ResolveTarget("aarch64"))[0];
  ASSERT_TRUE(WriteObject(folder.path() / "w.o", target, {"one"}).ok());
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(4);
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      results[i] = LinkShared(target, {folder.path() / "w.o"}, "w.so",
                              folder.path() / fmt::format("{}.so", i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

}  // namespace
}  // namespace quench::codegen::link_test
