// The part of a TensorFlow Lite file that is read: a subgraph, its inputs and outputs, and those of
// its operators that the outputs need.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/importer/graph/converter.h"
#include "services/importer/importer.h"
#include "services/importer/tflite/model_file.h"

namespace quench::importer {

std::vector<int32_t> Indices(const flatbuffers::Vector<int32_t>* list);

// A tensor's name. If a converter joined several names by `;` because it fused several operators, the
// first of them.
std::string TensorName(const tflite::SubGraph& subgraph, int32_t tensor);

// The subgraph to read, and the names of its inputs and outputs.
struct Entry {
  uint32_t subgraph = 0;
  std::map<int32_t, std::string> names;  // from a signature, by tensor
  std::vector<int32_t> inputs, outputs;
};

// The entry for the options' signature, or the first subgraph; with the options' cut. INVALID_ARGUMENT
// for signatures and tensors that the model lacks.
absl::StatusOr<Entry> EntryOf(const tflite::Model& model, const ImportOptions& options);
// Operators of the entry's subgraph that its outputs need; all of them without a cut.
std::vector<bool> NeededOperators(const tflite::SubGraph& subgraph, const Entry& entry,
                                  const ImportOptions& options);

// Checks the number of operators to read, where a subgraph counts each time it is run: RESOURCE_EXHAUSTED
// if there are too many, INVALID_ARGUMENT for subgraphs that run themselves, or that are nested too
// deeply.
absl::Status CheckOperators(const tflite::Model& model, const Entry& entry,
                            const std::vector<bool>& needed);

// Whether the reader itself handles the operator: control flow, calls, variables.
bool IsStructural(std::string_view name);

// Operators of the model for which `find` has no conversion, sorted by domain and name; with a cut, only
// those that remain.
absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedTflite(const TfliteFile& file,
                                                                 const FindConversion& find,
                                                                 const ImportOptions& options);

}  // namespace quench::importer
