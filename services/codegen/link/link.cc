#include "services/codegen/link/link.h"

#include <lld/Common/Driver.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

#include "common/base/files.h"
#include "common/base/status.h"

LLD_HAS_DRIVER(elf)

#if LLVM_VERSION_MAJOR < 20
// Declarations of lld, as far as it is used here. A link whose objects name _GLOBAL_OFFSET_TABLE_
// leaves its symbol behind when it frees everything else, and the next link without that name
// writes to it.
namespace lld::elf {
class Defined;
struct ElfSym {
  static Defined* globalOffsetTable;
};
}  // namespace lld::elf
#endif

namespace quench::codegen {
namespace {

// lld keeps its state in globals: one link at a time, on one thread.
absl::Status RunLinker(const std::vector<std::string>& args) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static bool usable = true;
  if (!usable) return Internal("the linker crashed earlier in this process");
  std::vector<const char*> argv;
  argv.reserve(args.size());
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  std::string complaints;
  llvm::raw_string_ostream errors(complaints);
  const lld::Result result =
      lld::lldMain(argv, llvm::nulls(), errors, {{lld::Gnu, &lld::elf::link}});
  usable = result.canRunAgain;
#if LLVM_VERSION_MAJOR < 20
  lld::elf::ElfSym::globalOffsetTable = nullptr;
#endif
  if (result.retCode != 0) return Internal("linking failed: {}", errors.str());
  return absl::OkStatus();
}

std::vector<std::string> CommonArguments(const Target& target,
                                         const std::filesystem::path& output) {
  return {"ld.lld",          "-m", target.linker_emulation, "--threads=1",
          "--build-id=none", "-o", output.string()};
}

void AddObjects(const std::vector<std::filesystem::path>& objects, std::vector<std::string>& args) {
  for (const std::filesystem::path& object : objects) args.push_back(object.string());
}

}  // namespace

absl::Status LinkShared(const Target& target, const std::vector<std::filesystem::path>& objects,
                        const std::string& soname, const std::filesystem::path& output) {
  std::vector<std::string> args = CommonArguments(target, output);
  // Bionic before API 23 knows the older table only; its pages have 16 KiB from Android 15 on.
  args.emplace_back(target.android ? "--hash-style=both" : "--hash-style=gnu");
  if (target.android) args.insert(args.end(), {"-z", "max-page-size=16384"});
  for (const char* arg : {"-shared", "-z", "defs", "-z", "now", "-z", "relro", "--strip-all",
                          "--gc-sections", "-soname"}) {
    args.emplace_back(arg);
  }
  args.push_back(soname);
  AddObjects(objects, args);
  return RunLinker(args);
}

absl::Status LinkRelocatable(const Target& target,
                             const std::vector<std::filesystem::path>& objects,
                             const std::filesystem::path& output) {
  std::vector<std::string> args = CommonArguments(target, output);
  args.emplace_back("-r");
  AddObjects(objects, args);
  return RunLinker(args);
}

}  // namespace quench::codegen
