// tests/cases/proto holds the contracts as clients have them: contracts.binpb is proto/quench as
// committed last, upstream.binpb what proto/{build,google,grpc} must stay equal to. Both are
// FileDescriptorSets without source info, sorted by name.
//
// QUENCH_UPDATE_GOLDENS=1 rewrites contracts.binpb, unless that would break clients. To break them
// on purpose, delete the file first. upstream.binpb is protoc's output for upstream's own files
// (googleapis f8291d2, remote-apis becdd8f, grpc-proto 99135b1, opentelemetry-proto as the Python package
// opentelemetry-proto 1.45.2 has it) and is never rewritten.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "common/base/files.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "tests/unit/proto/breaking.h"
#include "tests/unit/proto/lint.h"

namespace quench::contracts_test {
namespace {

namespace fs = std::filesystem;
using google::protobuf::DescriptorPool;
using google::protobuf::DescriptorPoolDatabase;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::MergedDescriptorDatabase;
using google::protobuf::SimpleDescriptorDatabase;

const fs::path kCases = QUENCH_PROTO_CASES;

FileDescriptorSet ReadSet(const fs::path& path) {
  FileDescriptorSet set;
  const absl::StatusOr<std::string> bytes = ReadFile(path);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(bytes.ok() && set.ParseFromString(*bytes)) << path;
  return set;
}

bool IsOurs(const std::string& name) { return name.starts_with("quench/"); }

// The tree's files that are ours, or that are upstream's, as the goldens hold them.
FileDescriptorSet TreeSet(bool ours) {
  FileDescriptorSet tree = ReadSet(QUENCH_BUILT_CONTRACTS);
  std::sort(tree.mutable_file()->pointer_begin(), tree.mutable_file()->pointer_end(),
            [](const auto* a, const auto* b) { return a->name() < b->name(); });
  FileDescriptorSet set;
  for (FileDescriptorProto& file : *tree.mutable_file()) {
    if (IsOurs(file.name()) != ours) continue;
    file.clear_source_code_info();
    *set.add_file() = file;
  }
  return set;
}

// Names of the files that are in one set only or are not equal byte by byte.
std::set<std::string> Differences(const FileDescriptorSet& a, const FileDescriptorSet& b) {
  const auto contents = [](const FileDescriptorSet& set) {
    std::set<std::pair<std::string, std::string>> files;
    for (const FileDescriptorProto& file : set.file())
      files.emplace(file.name(), file.SerializeAsString());
    return files;
  };
  std::vector<std::pair<std::string, std::string>> differing;
  const auto left = contents(a), right = contents(b);
  std::set_symmetric_difference(left.begin(), left.end(), right.begin(), right.end(),
                                std::back_inserter(differing));
  std::set<std::string> names;
  for (const auto& [name, bytes] : differing) names.insert(name);
  return names;
}

bool Updating() { return std::getenv("QUENCH_UPDATE_GOLDENS") != nullptr; }

TEST(Contracts, NothingBreaks) {
  const fs::path golden = kCases / "contracts.binpb";
  if (Updating() && !fs::exists(golden)) return;
  for (const std::string& problem : FindBreakingChanges(ReadSet(golden), TreeSet(true)))
    ADD_FAILURE() << problem;
}

TEST(Contracts, GoldenIsCurrent) {
  const fs::path golden = kCases / "contracts.binpb";
  const FileDescriptorSet tree = TreeSet(true);
  if (Updating() && (!fs::exists(golden) || FindBreakingChanges(ReadSet(golden), tree).empty())) {
    ASSERT_TRUE(WriteFileAtomically(golden, tree.SerializeAsString()).ok());
  }
  EXPECT_EQ(Differences(ReadSet(golden), tree), std::set<std::string>())
      << "run scripts/update_goldens";
}

TEST(Contracts, UpstreamIsUnchanged) {
  EXPECT_EQ(Differences(ReadSet(kCases / "upstream.binpb"), TreeSet(false)),
            std::set<std::string>());
}

TEST(Contracts, EveryFileIsBuilt) {
  std::set<std::string> built, found;
  const FileDescriptorSet tree = ReadSet(QUENCH_BUILT_CONTRACTS);
  for (const FileDescriptorProto& file : tree.file()) built.insert(file.name());
  const fs::path root = QUENCH_PROTO_SOURCES;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().lexically_relative(root).generic_string();
    // Messages between processes of one program are not a contract.
    if (entry.path().extension() == ".proto" && !name.starts_with("quench/child/")) {
      found.insert(name);
    }
  }
  EXPECT_EQ(built, found) << "see proto/CMakeLists.txt";
}

TEST(Contracts, RulesAreKept) {
  const FileDescriptorSet tree = ReadSet(QUENCH_BUILT_CONTRACTS);
  SimpleDescriptorDatabase files;
  for (const FileDescriptorProto& file : tree.file()) ASSERT_TRUE(files.Add(file)) << file.name();
  DescriptorPoolDatabase well_known(*DescriptorPool::generated_pool());
  MergedDescriptorDatabase both(&files, &well_known);
  DescriptorPool pool(&both);
  for (const FileDescriptorProto& proto : tree.file()) {
    const FileDescriptor* file = pool.FindFileByName(proto.name());
    ASSERT_NE(file, nullptr) << proto.name();
    // The own vocabularies of ONNX and TensorFlow, under packages of ours.
    const bool theirs =
        proto.name().starts_with("quench/onnx/") || proto.name().starts_with("quench/tensorflow/");
    if (!IsOurs(proto.name()) || theirs) continue;
    for (const std::string& problem : FindLintProblems(*file)) ADD_FAILURE() << problem;
  }
}

// The descriptors linked into programs equal the descriptor sets.
TEST(Contracts, LinkedFilesAreTheTrees) {
  EXPECT_STREQ(gateway::v1::Workflows::service_full_name(), "quench.gateway.v1.Workflows");
  const FileDescriptor* file = gateway::v1::WorkflowMetadata::descriptor()->file();
  std::set<const FileDescriptor*> reached{file};
  std::vector<const FileDescriptor*> todo{file};
  while (!todo.empty()) {
    const FileDescriptor* next = todo.back();
    todo.pop_back();
    for (int i = 0; i < next->dependency_count(); ++i)
      if (reached.insert(next->dependency(i)).second) todo.push_back(next->dependency(i));
  }
  std::map<std::string, const FileDescriptorProto*> expected;
  const FileDescriptorSet ours = TreeSet(true), upstream = TreeSet(false);
  for (const auto* set : {&ours, &upstream})
    for (const FileDescriptorProto& proto : set->file()) expected[proto.name()] = &proto;
  for (const FileDescriptor* linked : reached) {
    if (linked->name().starts_with("google/protobuf/")) continue;
    FileDescriptorProto proto;
    linked->CopyTo(&proto);
    linked->CopyJsonNameTo(&proto);
    ASSERT_TRUE(expected.contains(linked->name())) << linked->name();
    EXPECT_TRUE(proto.SerializeAsString() == expected[linked->name()]->SerializeAsString())
        << linked->name();
  }
  EXPECT_GE(reached.size(), 10u);
}

}  // namespace
}  // namespace quench::contracts_test
