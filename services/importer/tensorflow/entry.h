// The part of a TensorFlow model to read: its outputs, the nodes they need, and the cut.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "services/importer/graph/converter.h"
#include "services/importer/importer.h"
#include "services/importer/tensorflow/body.h"
#include "services/importer/tensorflow/model_file.h"

namespace quench::importer {

// Limit for the nodes that outputs need, and for those of the graph after inlining.
inline constexpr size_t kMaxTensorflowNodes = 250'000;

// Bodies of functions, each read when it is first called.
class TfProgram {
 public:
  explicit TfProgram(const TensorflowFile& file);
  absl::Status Read();

  const TensorflowFile& file() const { return file_; }
  const TfBody& main() const { return main_; }
  const TfLibrary& library() const { return library_; }
  absl::StatusOr<const TfBody*> BodyOf(const tf::FunctionDef& function);
  // The function that an attribute of the node names.
  absl::StatusOr<const TfBody*> BodyIn(const tf::NodeDef& node, const std::string& attribute);

 private:
  const TensorflowFile& file_;
  TfBody main_;
  TfLibrary library_;
  std::map<const tf::FunctionDef*, std::unique_ptr<TfBody>> bodies_;
};

struct TfNamed {
  std::string name;
  TfRef ref;
};

struct TfEntry {
  std::vector<TfNamed> inputs, outputs;
  // The nodes to read, in the graph and in each function; a function of which one result is needed is
  // read as a whole.
  std::map<const TfBody*, std::vector<int>> needed;
};

// For a saved model the signature's inputs and outputs; else the options' outputs or those of the
// graph's last node, and the placeholders they need; with the options' cut. INVALID_ARGUMENT names
// tensors and signatures that the model lacks.
absl::StatusOr<TfEntry> EntryOf(TfProgram& program, const ImportOptions& options);

// Operators for which `find` has no conversion and that the reader does not handle, sorted by name.
std::vector<UnsupportedOp> UnsupportedIn(const TfProgram& program, const TfEntry& entry,
                                         const FindConversion& find);

// Random numbers that only choose the elements that a dropout drops.
bool DrawsDropout(const TfBody& body, int node);

}  // namespace quench::importer
