#include "services/codegen/object/sections.h"

#include <fmt/ranges.h>
#include <llvm/Object/Archive.h>
#include <llvm/Object/ObjectFile.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "services/codegen/object/formats.h"

namespace quench::codegen {
namespace {

// The text of a section, which ends with a zero.
absl::StatusOr<std::string> TextOf(const llvm::object::SectionRef& section) {
  llvm::Expected<llvm::StringRef> contents = section.getContents();
  if (!contents) return Internal("{}", llvm::toString(contents.takeError()));
  return std::string(contents->substr(0, contents->find('\0')));
}

// Nothing where the object is none of a model.
absl::StatusOr<std::optional<LibrarySections>> ReadObject(const llvm::object::ObjectFile& object) {
  LibrarySections result;
  bool described = false;
  for (const llvm::object::SectionRef& section : object.sections()) {
    llvm::Expected<llvm::StringRef> section_name = section.getName();
    if (!section_name) return Internal("{}", llvm::toString(section_name.takeError()));
    if (*section_name == kUuidSection) {
      QUENCH_ASSIGN_OR_RETURN(result.uuid, TextOf(section));
    } else if (*section_name == kDescriptionSection) {
      QUENCH_ASSIGN_OR_RETURN(result.description, TextOf(section));
      described = true;
    }
  }
  if (!described) return std::optional<LibrarySections>();
  result.kind = object.isRelocatableObject() ? "object" : "shared library";
  result.machine = llvm::Triple::getArchTypeName(object.getArch()).str();
  return std::optional(std::move(result));
}

absl::StatusOr<std::optional<LibrarySections>> ReadArchive(const llvm::object::Archive& archive) {
  std::optional<LibrarySections> found;
  llvm::Error error = llvm::Error::success();
  absl::Status problem;
  for (const llvm::object::Archive::Child& child : archive.children(error)) {
    llvm::Expected<std::unique_ptr<llvm::object::Binary>> member = child.getAsBinary();
    if (!member) {
      problem = Internal("{}", llvm::toString(member.takeError()));
      break;
    }
    const auto* object = llvm::dyn_cast<llvm::object::ObjectFile>(member->get());
    if (object == nullptr) continue;
    absl::StatusOr<std::optional<LibrarySections>> read = ReadObject(*object);
    if (read.ok() && *read && found) {
      problem = Internal("it has several models: `ar x` takes them apart");
    } else if (read.ok() && *read) {
      found = *std::move(read);
      found->kind = "archive";
    } else {
      problem = read.status();
    }
    if (!problem.ok()) break;
  }
  if (error) {
    absl::Status broken = Internal("{}", llvm::toString(std::move(error)));
    if (problem.ok()) problem = std::move(broken);
  }
  if (!problem.ok()) return problem;
  return found;
}

absl::StatusOr<std::optional<LibrarySections>> Read(llvm::MemoryBufferRef buffer) {
  llvm::Expected<std::unique_ptr<llvm::object::Binary>> binary = llvm::object::createBinary(buffer);
  if (!binary) return Internal("{}", llvm::toString(binary.takeError()));
  if (const auto* archive = llvm::dyn_cast<llvm::object::Archive>(binary->get()))
    return ReadArchive(*archive);
  if (const auto* object = llvm::dyn_cast<llvm::object::ObjectFile>(binary->get()))
    return ReadObject(*object);
  return std::optional<LibrarySections>();
}

// By the formats' own marks: LLVM reads many more.
bool IsObject(std::span<const std::byte> bytes) {
  const std::span<const ObjectFormat> formats = ObjectFormats();
  return std::any_of(formats.begin(), formats.end(),
                     [&](const ObjectFormat& format) { return format.begins(bytes); });
}

std::string Described() {
  std::vector<std::string> formats;
  for (const ObjectFormat& format : ObjectFormats()) formats.emplace_back(format.described);
  return fmt::format("{}", fmt::join(formats, ", "));
}

}  // namespace

absl::StatusOr<LibrarySections> ReadSections(std::span<const std::byte> bytes,
                                             const std::string& name) {
  const llvm::StringRef text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!IsObject(bytes) && !text.starts_with("!<arch>\n")) {
    return InvalidArgument("`{}` is not a library: it is neither {} nor an archive", name,
                           Described());
  }
  const absl::StatusOr<std::optional<LibrarySections>> read =
      Read(llvm::MemoryBufferRef(text, name));
  if (!read.ok()) return InvalidArgument("`{}` cannot be read: {}", name, MessageOf(read.status()));
  if (!*read) {
    return InvalidArgument(
        "`{}` is not a library that Quench compiled, or an older version did: it has no section "
        "`{}`",
        name, kDescriptionSection);
  }
  return **read;
}

}  // namespace quench::codegen
