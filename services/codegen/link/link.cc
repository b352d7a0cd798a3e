#include "services/codegen/link/link.h"

#include <lld/Common/Driver.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/codegen/object/formats.h"

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

absl::Status LinkObjects(std::vector<std::string> args,
                         const std::vector<std::filesystem::path>& objects,
                         const std::filesystem::path& output) {
  args.insert(args.end(), {"-o", output.string()});
  for (const std::filesystem::path& object : objects) args.push_back(object.string());
  return RunLinker(args);
}

}  // namespace

absl::Status LinkShared(const Target& target, const std::vector<std::filesystem::path>& objects,
                        const std::string& soname, const std::filesystem::path& output) {
  return LinkObjects(FormatOf(target).shared_arguments(target, soname), objects, output);
}

absl::Status LinkRelocatable(const Target& target,
                             const std::vector<std::filesystem::path>& objects,
                             const std::filesystem::path& output) {
  return LinkObjects(FormatOf(target).relocatable_arguments(target), objects, output);
}

}  // namespace quench::codegen
