// Candidates for the nodes of a graph.
#pragma once

#include <map>
#include <memory>
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

// A candidate for a node of a graph: kernel, plan, preparation, packs and layouts, as a hash of their text.
// Equal in all compilations of the model.
std::string CandidateKey(const Node& node, const Candidate& candidate, const SymbolTable& symbols);

// Proposes for the nodes of one variant, whose graphs (bodies included) share a table of symbols. Changes
// nothing but itself.
class Proposer {
 public:
  // All must outlive it. Where `target` has device code, kernels are for its GPU; what no such kernel takes is for the
  // target itself, the host.
  Proposer(const Target& target, const CompileOptions& options)
      : target_(target.device ? *target.device : target),
        host_(target.device ? &target : nullptr),
        options_(options) {}

  // All candidates for a node at the level of the options. A group is asked about when groups are cut,
  // and again when kernels are chosen: its proposals are kept.
  Proposals Of(const Graph& graph, const Node& node);

 private:
  struct Known {
    GraphPtr body;         // keeps the address that stands for it
    std::string identity;  // of the node around it
    Proposals proposals;
  };
  std::shared_ptr<SymbolTable> Scratch(const Graph& graph);
  std::vector<Candidate> Propose(const Graph& graph, const Node& node, SymbolTable& symbols) const;
  std::vector<Candidate> ProposeFor(const Target& target, const Graph& graph, const Node& node,
                                    SymbolTable& symbols) const;

  const Target& target_;
  const Target* const host_;  // of a GPU
  const CompileOptions& options_;
  std::map<const Graph*, Known> known_;  // groups, by their bodies
  std::shared_ptr<SymbolTable> scratch_;
  int copied_ = -1;  // symbols of the graph's table when `scratch_` was copied
};

}  // namespace quench::codegen
