// Pickles as data: nothing that a pickle names is ever run. The few callables that occur in PyTorch's
// files stay names with arguments for the caller to interpret.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace quench::importer {

struct Pickled {
  enum class Kind : uint8_t {
    kNone,
    kBool,        // number
    kInt,         // number
    kFloat,       // real
    kText,        // text: str, bytes
    kList,        // items
    kTuple,       // items
    kDict,        // items: key, value, key, value ...
    kGlobal,      // text: "module.name"
    kObject,      // items[0]: a global, items[1]: its arguments; `state` of BUILD
    kPersistent,  // items[0]: the name of the storage
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  double real = 0;
  std::string text;
  std::vector<const Pickled*> items;
  const Pickled* state = nullptr;

  bool Is(Kind wanted) const { return kind == wanted; }
  bool IsSequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  // The name of an object's class or function; "" for anything else.
  const std::string& Callee() const;
  // The value of a key of a dict, or null.
  const Pickled* Find(std::string_view key) const;
};

// A pickle and everything in it. Values may be shared, and lists may contain themselves: readers limit
// their depth.
class PickleFile {
 public:
  const Pickled& root() const { return *root_; }

 private:
  friend class PickleReader;
  std::deque<Pickled> values_;
  const Pickled* root_ = nullptr;
};

// Reads protocols 0 to 5, as far as PyTorch uses them. INVALID_ARGUMENT for a damaged pickle, one that names a global
// which is not data (the message names it), and one of more than 64 Mi values.
absl::StatusOr<std::shared_ptr<const PickleFile>> ReadPickle(std::span<const std::byte> bytes);

// Readers of nested values go no deeper.
inline constexpr int kMaxPickleDepth = 200;

}  // namespace quench::importer
