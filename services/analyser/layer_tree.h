// Layers by the scopes in their names: `features/0/conv` is `conv` in `0` in `features`.
#pragma once

#include <string>
#include <vector>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// A layer, or a scope with the sums over its layers.
struct TreeRow {
  int depth = 1;
  std::string name;         // within the parent; a scope with a single part shares its row
  int layer = -1;           // index into ModelReport::layers; -1: a scope
  int first = 0, last = 0;  // a scope's first and last layer
  int layers = 1;
  Work work = {};
  int64_t moved_bytes = 0;
  double predicted_seconds = 0;
};

// Rows in the order in which scopes begin. Rows deeper than `depth` are left out; 0 keeps all.
std::vector<TreeRow> LayerTree(const ModelReport& report, int depth);

// The LayerTree as a table with TableOptions::columns.
std::string LayerTable(const ModelReport& report, const TableOptions& options);

}  // namespace quench::analyser
