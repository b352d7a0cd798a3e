// Layers by the scopes in their names: `features/0/conv` is `conv` in `0` in `features`.
#pragma once

#include <string>
#include <vector>

#include "services/analyser/analyser.h"

namespace quench::analyser {

// A layer, or a scope with the sums over its layers.
struct TreeRow {
  int depth = 1;
  std::string name;         // within the row above; scopes with a single part are one row with that
  int layer = -1;           // of ModelReport::layers; -1: a scope
  int first = 0, last = 0;  // a scope's first and last layer
  int layers = 1;
  Work work = {};
  int64_t moved_bytes = 0;
  double predicted_seconds = 0;
};

// In the order in which scopes begin. Rows deeper than `depth` are left out; 0: none.
std::vector<TreeRow> LayerTree(const ModelReport& report, int depth);

// LayerTree as a table of TableOptions::columns.
std::string LayerTable(const ModelReport& report, const TableOptions& options);

}  // namespace quench::analyser
