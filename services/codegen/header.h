// The C header that goes with a compiled model.
#pragma once

#include <string>

#include "common/ir/graph.h"

namespace quench::codegen {

struct HeaderFacts {
  std::string library;  // its file's name
  std::string uuid;
  std::string producer;
  bool registers = false;  // a static library that registers its model
  std::string prefix;      // see HeaderPrefix
};

// Prefix of macros for a model called `name`: an upper-case C identifier that is not reserved, so that one program can
// include the headers of several models. `MODEL` if no character of the name is left.
std::string HeaderPrefix(const std::string& name);

// Names, shapes and types of inputs and outputs as comments and constants, and how to run the
// model.
std::string ModelHeader(const Graph& graph, const HeaderFacts& facts);

}  // namespace quench::codegen
