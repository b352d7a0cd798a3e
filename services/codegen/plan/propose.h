// Candidates for the nodes of a graph, proposed once for each node.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/kernels/kernel.h"
#include "services/codegen/options/options.h"

namespace quench::codegen {

KernelOptions KernelOptionsOf(const CompileOptions& options);

// Candidates over a copy of the graph's symbols, to which they have added theirs.
struct Proposals {
  std::vector<Candidate> candidates;
  std::shared_ptr<SymbolTable> symbols;
};

// A candidate as its graph's own table has it.
Candidate InTable(const Candidate& candidate, const SymbolTable& from, SymbolTable& to);

// A candidate for a node of a graph: kernel, plan and layouts, as a hash of their text. Equal in all
// compilations of the model.
std::string CandidateKey(const Node& node, const Candidate& candidate, const SymbolTable& symbols);

// Proposes for the nodes of one variant: `graph`, bodies included, and of what its groups are cut into.
// Changes nothing but itself.
class Proposer {
 public:
  // `target` and `options` must outlive it.
  Proposer(const Graph& graph, const Target& target, const CompileOptions& options);

  // All candidates for a node at the level of the options. Proposals for a node that is unchanged since
  // are given again.
  const Proposals& Of(const Graph& graph, const Node& node);

 private:
  std::shared_ptr<SymbolTable> Scratch(const Graph& graph);
  std::vector<Candidate> Propose(const Graph& graph, const Node& node, SymbolTable& symbols) const;

  const Target& target_;
  const CompileOptions& options_;
  std::set<std::string> repeated_;  // names that several nodes have
  std::map<std::string, Proposals> known_;
  Proposals last_;  // of a node with such a name
  std::shared_ptr<SymbolTable> scratch_;
  int copied_ = -1;  // symbols of the graph's table when `scratch_` was copied
};

}  // namespace quench::codegen
