// Code that has taken over a step, from inside: what it reaches.
#include "common/steps/sandbox.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/steps/child.h"
#include "common/steps/runner.h"
#include "common/steps/storage.h"
#include "quench/child/v1/child.pb.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/common/steps/test_steps.h"
#include "tests/unit/common/steps/walls.h"

namespace quench::steps::sandbox_test {
namespace {

using codegen::v1::PackageResult;
using testing::HasSubstr;
namespace fs = std::filesystem;

class SandboxTest : public ::testing::Test {
 protected:
  SandboxTest() {
    config::v1::BlobStore blobs;
    blobs.set_folder(root().string());
    storage_ = *OpenStorage(blobs, true);
    theirs_ = *(*storage_("other"))->local().Put(std::as_bytes(std::span("theirs", 6)));
    unnamed_ = *(*storage_("default"))->local().Put(std::as_bytes(std::span("unnamed", 7)));
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / "secret", "key").ok());
  }

  fs::path root() const { return folder_.path() / "store"; }
  fs::path PathOf(const std::string& tenant, const std::string& hash) {
    return (*storage_(tenant))->local().PathOf(hash);
  }
  absl::StatusOr<std::unique_ptr<StepRunner>> MakeRunner(unsigned walls, bool required = false) {
    RunnerOptions options;
    options.program = STEP_PROGRAM;
    options.scratch = folder_.path() / "scratch";
    options.registry = &registry_;
    options.walls = walls;
    options.require_sandbox = required;
    options.limits = limits_;
    return StepRunner::Create(options, storage_);
  }
  absl::StatusOr<PackageResult> Run(StepRunner& runner, const codegen::v1::PackageRequest& request,
                                    const Step& step = UncachedTestStep()) {
    PackageResult result;
    QUENCH_RETURN_IF_ERROR(runner.Run(step, request, {}, &result));
    return result;
  }
  // The step's report of its environment.
  std::string Told(StepRunner& runner, const codegen::v1::PackageRequest& request,
                   const Step& step = UncachedTestStep()) {
    const auto result = Run(runner, request, step);
    if (!result.ok()) return result.status().ToString();
    const auto file = (*storage_("default"))->local().Open(result->library().hash());
    if (!file.ok()) return file.status().ToString();
    return {reinterpret_cast<const char*>((*file)->bytes().data()), (*file)->bytes().size()};
  }
  std::string Told(StepRunner& runner, const std::string& what) {
    return Told(runner, TestRequest(what));
  }

  // By a step that may use the machine's GPUs.
  std::string ToldWithGpus(const std::string& what, unsigned walls) {
    const TempDir scratch = *TempDir::Create(), drafts = *TempDir::Create();
    child::v1::Order order;
    order.set_method(UncachedTestStep().method);
    order.set_request(TestRequest(what).SerializeAsString());
    order.set_scratch(scratch.path().string());
    order.set_drafts(drafts.path().string());
    order.set_inputs(drafts.path().string());
    order.set_max_memory_bytes(int64_t{4} << 30);
    order.set_walls(walls);
    order.set_gpus(true);
    const auto bytes = RunInChild(STEP_PROGRAM, order, {}, registry_, nullptr);
    PackageResult result;
    if (!bytes.ok() || !result.ParseFromString(*bytes)) return bytes.status().ToString();
    return ReadFile(drafts.path() / result.library().hash()).value_or("nothing");
  }

  codegen::v1::PackageRequest RequestOfInput(const std::string& what) const {
    codegen::v1::PackageRequest request = TestRequest(what);
    request.mutable_library()->set_hash(unnamed_);
    request.mutable_library()->set_size_bytes(7);
    return request;
  }

  // Each with what it is aimed at.
  std::vector<std::string> OnFiles() {
    const std::string blob = PathOf("other", theirs_).string();
    const std::string own = PathOf("default", unnamed_).string();
    const std::string secret = (folder_.path() / "secret").string();
    return {"read:" + blob,
            "read:" + own,
            "read:" + secret,
            "read:/etc/passwd",
            "read:/etc/hostname",
            "write:" + blob,
            "append:" + blob,
            "unlink:" + blob,
            "rename:" + blob,
            "link:" + blob,
            "list:" + root().string(),
            "list:/etc",
            "list:" + (root() / "ac").string(),
            "write:" + (root() / "ac" / "00").string(),
            "write:" + (root() / "blobs" / "sha256" / "x").string(),
            "make:" + (root() / "x").string(),
            "write:" + (folder_.path() / "x").string(),
            "list:/home",
            "list:/tmp",
            "list:/proc",
            fmt::format("read:/proc/{}/environ", ::getpid()),
            fmt::format("read:/proc/{}/mem", ::getpid()),
            fmt::format("list:/proc/{}/fd", ::getpid()),
            fmt::format("read:/proc/{}/maps", ::getpid()),
            "read:/proc/kallsyms",
            "write:/dev/shm/x",
            "write:/sys/kernel/x"};
  }
  std::vector<std::string> OnCalls() {
    const std::string blob = PathOf("other", theirs_).string();
    const std::string me = std::to_string(::getpid());
    std::vector<std::string> all = {"truncate:" + blob,
                                    "chmod:" + blob,
                                    "chown:" + blob,
                                    "utime:" + blob,
                                    "setxattr:" + blob,
                                    "killall",
                                    "fork",
                                    "vfork",
                                    "clone3",
                                    "namespace",
                                    "unshare",
                                    "execute",
                                    "memory-file",
                                    "socket",
                                    "netlink",
                                    "connect:" + (folder_.path() / "s").string(),
                                    "ring",
                                    "perf",
                                    "bpf",
                                    "userfaultfd",
                                    "keys",
                                    "mount",
                                    "root",
                                    "terminal"};
    for (const char* name : {"kill:", "tgkill:", "pidfd:", "queue:", "own:", "prlimit:",
                             "priority:", "ptrace:", "vmread:"}) {
      all.push_back(name + me);
    }
    return all;
  }

  TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  StepLimits limits_;
  StepRunner::StorageOf storage_;
  std::string theirs_, unnamed_;
};

TEST_F(SandboxTest, EveryEscapeFails) {
  if ((WallsHere() & kNeededWalls) != kNeededWalls) {
    GTEST_SKIP() << "this kernel lacks walls: " << Describe(WallsHere());
  }
  // As the kernel has it, and as one that lets nobody make namespaces.
  for (const unsigned walls : {WallsHere(), WallsHere() & ~unsigned{kNamespaces}}) {
    SCOPED_TRACE(Describe(walls));
    const auto runner = *MakeRunner(walls, true);
    std::vector<std::string> escapes = OnFiles();
    for (std::string& each : OnCalls()) escapes.push_back(std::move(each));
    escapes.emplace_back("raise");
    for (const std::string& escape : escapes) {
      const std::string told = Told(*runner, escape);
      EXPECT_TRUE(told == std::strerror(EPERM) || told == std::strerror(EACCES) ||
                  told == std::strerror(ENOSYS) || told == std::strerror(ESRCH))
          << escape << ": " << told;
    }
    EXPECT_EQ(*ReadFile(PathOf("other", theirs_)), "theirs");
  }
}

TEST_F(SandboxTest, EveryEscapeOfAStepWithGpusFails) {
  if ((WallsHere() & kNeededWalls) != kNeededWalls) GTEST_SKIP() << Describe(WallsHere());
  std::vector<std::string> escapes = OnFiles();
  for (std::string& each : OnCalls()) escapes.push_back(std::move(each));
  for (const std::string& escape : escapes) {
    const std::string told = ToldWithGpus(escape, WallsHere());
    EXPECT_TRUE(told == std::strerror(EPERM) || told == std::strerror(EACCES) ||
                told == std::strerror(ENOSYS) || told == std::strerror(ESRCH))
        << escape << ": " << told;
  }
  EXPECT_EQ(ToldWithGpus("echo:x", WallsHere()), "x");
}

TEST_F(SandboxTest, WhatStepsNeedTheyHave) {
  const auto runner = *MakeRunner(WallsHere());
  EXPECT_EQ(Told(*runner, "file:1"), "ok");
  EXPECT_EQ(Told(*runner, "load"), "ok");
  EXPECT_EQ(Told(*runner, "read:/proc/self/maps"), "ok");
  EXPECT_EQ(Told(*runner, RequestOfInput("input")), "unnamed");
}

// Two steps that make the same library: the second takes the first one's place in the store, while another
// step is about to load it.
TEST_F(SandboxTest, InputsThatTheStoreReplacesOrRemovesStay) {
  LocalBlobStore& store = (*storage_("default"))->local();
  for (const bool again : {true, false}) {
    const StepContext context(std::make_shared<CancelToken>(), [&](const Progress& progress) {
      if (progress.stage != "late") return;
      if (again) {
        EXPECT_TRUE(store.Put(std::as_bytes(std::span("unnamed", 7))).ok());
      } else {
        fs::remove(store.PathOf(unnamed_));
      }
      EXPECT_TRUE(WriteFileAtomically(progress.detail, "").ok());
    });
    PackageResult result;
    const absl::Status status =
        (*MakeRunner(WallsHere()))
            ->Run(UncachedTestStep(), RequestOfInput("late"), context, &result);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(result.library().hash(), unnamed_);
  }
}

// By no way that a descriptor opens, either.
TEST_F(SandboxTest, InputsAreReadOnly) {
  if ((WallsHere() & kNeededWalls) != kNeededWalls) GTEST_SKIP() << Describe(WallsHere());
  const auto runner = *MakeRunner(WallsHere());
  const fs::path path = PathOf("default", unnamed_);
  for (const char* escape : {"write:", "append:", "truncate:", "chmod:", "utime:", "unlink:",
                             "rename:", "link:", "setxattr:"}) {
    for (const std::string& aim : {path.string(), std::string("@input")}) {
      const std::string told = Told(*runner, RequestOfInput(escape + aim));
      EXPECT_TRUE(told == std::strerror(EPERM) || told == std::strerror(EACCES)) << escape << told;
    }
  }
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0444u);
  EXPECT_EQ(*ReadFile(path), "unnamed");
}

TEST_F(SandboxTest, NoThreadStaysOutside) {
  if ((WallsHere() & kCallWall) == 0) GTEST_SKIP() << Describe(WallsHere());
  EXPECT_EQ(Told(**MakeRunner(WallsHere()), "loose"), "0");
}

// Processes of this user that hold a file in the test's folder.
int HoldersOf(const fs::path& folder) {
  int holders = 0;
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    for (fs::directory_iterator file(process.path() / "fd", error), end; !error && file != end;
         file.increment(error)) {
      std::error_code gone;
      holders += fs::read_symlink(file->path(), gone).string().starts_with(folder.string()) ? 1 : 0;
    }
  }
  return holders;
}

// HDF5 files are read in a process of the step's own.
TEST_F(SandboxTest, ProcessesOfAStepEndWithIt) {
  for (const unsigned walls : {WallsHere(), WallsHere() & ~unsigned{kNamespaces}}) {
    SCOPED_TRACE(Describe(walls));
    const auto runner = *MakeRunner(walls);
    const fs::path scratch = folder_.path() / "scratch";
    const int before = HoldersOf(scratch);  // the lock's
    EXPECT_EQ(Told(*runner, TestRequest("leave"), ForkingTestStep()), "ok");
    EXPECT_TRUE(testing::WaitFor([&] { return HoldersOf(scratch) == before; }));
    for (const char* escape : {"kill:1", "namespace", "socket", "execute", "unshare"}) {
      if ((walls & kCallWall) == 0) break;
      EXPECT_NE(Told(*runner, TestRequest(escape), ForkingTestStep()), "ok") << escape;
    }
  }
}

TEST_F(SandboxTest, TheEnvironmentIsMade) {
  ::setenv("QUENCH_SECRET", "of the service", 1);
  const std::string told = Told(**MakeRunner(WallsHere()), "environment");
  ::unsetenv("QUENCH_SECRET");
  EXPECT_THAT(told, HasSubstr("TMPDIR="));
  EXPECT_EQ(told.find("QUENCH_SECRET"), std::string::npos);
  EXPECT_EQ(told.find("HOME="), std::string::npos);
}

TEST_F(SandboxTest, WhatIsWrittenIsLimited) {
  limits_.disk_bytes = int64_t{8} << 20;
  limits_.open_files = 100;
  const auto runner = *MakeRunner(WallsHere());
  EXPECT_EQ(Told(*runner, "file:4"), "ok");
  // Refused by the kernel, because the file would be too long, or by the service, which may have
  // counted its blocks already.
  const std::string told = Told(*runner, "file:16");
  const bool counted = told.find("RESOURCE_LIMIT") != std::string::npos;
  EXPECT_TRUE(counted || told == std::strerror(EFBIG)) << told;
  EXPECT_EQ(Told(*runner, "open"), std::strerror(EMFILE));
  // Many files, those without a byte too, and folders in which nobody can look for them.
  for (const char* what : {"files:16", "empty:600", "nest"}) {
    const absl::Status status = Run(*runner, TestRequest(what)).status();
    EXPECT_EQ(rpc::ReasonOf(status), "RESOURCE_LIMIT") << what << ": " << status;
  }
  EXPECT_EQ(registry_.Get(metrics::kChildrenEnded, metrics::ChildEnd::kDisk).Value(),
            counted ? 4 : 3);
}

// No limit of the kernel's holds for blocks beyond the end of a file.
TEST_F(SandboxTest, DiskIsTakenByWritingAlone) {
  if ((WallsHere() & kCallWall) == 0) GTEST_SKIP() << Describe(WallsHere());
  const auto runner = *MakeRunner(WallsHere());
  EXPECT_EQ(Told(*runner, "allocate:1"), std::strerror(EOPNOTSUPP));
  EXPECT_EQ(Told(*runner, "reserve:1"), "ok");
}

#if defined(__x86_64__)
// By the numbers of another architecture, for which the list of calls does not stand.
TEST_F(SandboxTest, CallsOfOtherArchitecturesEndTheProcess) {
  if ((WallsHere() & kCallWall) == 0) GTEST_SKIP() << Describe(WallsHere());
  const auto runner = *MakeRunner(WallsHere());
  for (const char* call : {"i386", "x32"}) {
    const absl::Status status = Run(*runner, TestRequest(call)).status();
    EXPECT_EQ(rpc::ReasonOf(status), "STEP_CRASHED") << call << ": " << status;
  }
}
#endif

TEST_F(SandboxTest, OutputsAreWhatTheirBytesSay) {
  const auto runner = *MakeRunner(WallsHere());
  EXPECT_THAT(Told(*runner, "lie:" + theirs_), HasSubstr("which it has not made"));
  EXPECT_THAT(Told(*runner, "forge"), HasSubstr("has not made"));
  EXPECT_FALSE((*storage_("default"))->local().Contains(theirs_));
  // Nothing stays of what was not adopted.
  size_t files = 0;
  for (const auto& each : fs::recursive_directory_iterator(root() / "drafts")) {
    files += each.is_regular_file() && each.path().filename() != "lock" ? 1 : 0;
  }
  EXPECT_EQ(files, 0u);
}

// A kernel that has less: what is missing is reached, and the server does not start.
TEST_F(SandboxTest, WithoutAWallTheServerRefuses) {
  EXPECT_TRUE(CheckWalls(kAllWalls).ok());
  EXPECT_TRUE(CheckWalls(kNeededWalls).ok());
  for (const unsigned missing : {unsigned{kFileWall}, unsigned{kCallWall}}) {
    const unsigned walls = WallsHere() & ~missing;
    const absl::Status refused = MakeRunner(walls, true).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(MessageOf(refused), HasSubstr(missing == kFileWall ? "Landlock" : "seccomp"));
    const auto runner = *MakeRunner(walls);
    EXPECT_EQ(Told(*runner, missing == kFileWall ? "read:" + (folder_.path() / "secret").string()
                                                 : std::string("socket")),
              "ok");
  }
}

}  // namespace
}  // namespace quench::steps::sandbox_test
