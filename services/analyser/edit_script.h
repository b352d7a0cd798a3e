// Scripts that change modules, in the language of docs/editing.md.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace quench::analyser {

enum class EditKind : uint8_t {
  kReplace,
  kInsert,
  kAdd,
  kRemove,
  kRenameValue,
  kRenameNode,
  kSet,
  kUnset,
  kConstant,
  kInput,
  kOutputs,
  kIn,
};

struct EditStatement {
  EditKind kind = EditKind::kAdd;
  size_t begin = 0, end = 0;       // in the text
  std::vector<std::string> nodes;  // nodes to change; for an insertion: the readers, empty for all
  std::string value;               // the value to change
  std::string to;                  // the new name, the replacement, or the attribute with a body
  std::vector<std::string> names;  // attributes, or outputs
  size_t part = 0;                 // position of its block, attributes or type; 0: it has none
  std::string file, array;         // of a constant: the file, and the array of an archive
  std::vector<EditStatement> body = {};  // kIn
};

struct EditScript {
  std::string name;  // with which errors begin: "edits.txt:3:1: problem"
  std::string text;
  std::vector<EditStatement> statements;
};

inline constexpr size_t kMostEditBytes = 1 << 20;

// Blocks and types are parsed when they are applied, because they refer to the module's values. Errors
// have the form "name:line:column: problem".
absl::StatusOr<EditScript> ParseEditScript(std::string text, std::string name = "script");
// The error for a part of the text, in the form "line:column: problem".
absl::Status ErrorIn(const EditScript& script, const absl::Status& status);

// Files from which the script takes constants, each with the name of an array, or "".
std::set<std::pair<std::string, std::string>> FilesOf(const EditScript& script);

}  // namespace quench::analyser
