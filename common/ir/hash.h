// Identities of graphs, stable across versions of Quench.
//
// Every value is hashed from its definition up: an input by its index and type, a constant by its
// type and the sha256 of its bytes, a node's output by its operator, attributes, inputs and
// position. Sizes enter through what defines them (input and axis, or the expression), never
// through names or table order. The graph is the inputs, the outputs in order, and the set of nodes
// with their uses. Types of intermediate values, stage, metadata and `origin` are left out: they
// follow from the rest or are comments.
#pragma once

#include <string>

#include "common/ir/graph.h"

namespace quench {

// sha256 over structure and weights (constants by the digest of their bytes): names and the order
// of independent nodes do not matter; input and output names do (they are the interface). `graph`
// is legal for its stage.
std::string Fingerprint(const Graph& graph);
// The same without constant contents and without any name.
std::string StructureHash(const Graph& graph);

// sha256 of a tensor's own bytes: little-endian row-major; a string is its length in 8 bytes, then
// its bytes.
std::string TensorDigest(const Tensor& tensor);

// The graph, its constants above kMaxInlineBytes with their digests: who stores, fingerprints and
// compares it then hashes their bytes once. Not those within bodies of nodes.
Graph WithDigests(Graph graph);

}  // namespace quench
