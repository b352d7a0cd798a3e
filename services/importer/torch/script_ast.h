// The syntax tree of TorchScript's code as its serializer writes it, a subset of Python.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quench::importer {

struct ScriptExpression;
using ExpressionPtr = std::shared_ptr<const ScriptExpression>;

struct ScriptExpression {
  enum class Kind : uint8_t {
    kNone,
    kBool,       // integer
    kInt,        // integer
    kFloat,      // real
    kText,       // text
    kName,       // text
    kAttribute,  // attribute `text` of items[0]
    kCall,       // items[0] with items[1 ...], the last `names.size()` of them by name
    kItem,       // items[0] [items[1]]
    kList,       // items
    kTuple,      // items
    kDict,       // key, value, key, value ...
    kMinus,      // items[0]
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<ExpressionPtr> items;
  std::vector<std::string> names;
  int line = 0;
};

struct ScriptStatement {
  enum class Kind : uint8_t {
    kAssign,  // targets = value
    kCall,    // value
    kIf,      // value, body, other
    kFor,     // targets[0] in range(value), body
    kWhile,   // value, body
    kReturn,  // value, which may be null
    kPass,
  };
  Kind kind = Kind::kPass;
  std::vector<ExpressionPtr> targets;
  bool unpacks = false;  // `a, b = value`; also with a single target
  ExpressionPtr value;
  std::vector<ScriptStatement> body, other;
  int line = 0;
};

struct ScriptParameter {
  std::string name;
  ExpressionPtr type;
  ExpressionPtr fallback;  // null: the argument is required
};

struct ScriptFunction {
  std::string name;
  std::vector<ScriptParameter> parameters;
  std::vector<ScriptStatement> body;
  std::string file;
};

struct ScriptClass {
  std::string name;
  std::map<std::string, ScriptFunction> methods;
  std::vector<std::string> fields;                 // in order, also of named tuples
  std::map<std::string, ExpressionPtr> constants;  // `dim : Final[int] = 1`
  bool is_named_tuple = false;
};

struct ScriptFile {
  std::map<std::string, ScriptClass> classes;
  std::map<std::string, ScriptFunction> functions;
};

// `name` is the file's name in messages. INVALID_ARGUMENT names the line. Nesting and the size of the file are
// limited.
absl::StatusOr<ScriptFile> ParseScript(std::string_view text, const std::string& name);

}  // namespace quench::importer
