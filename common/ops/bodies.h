// Bodies of control operators. Outer values reach a body as explicit inputs:
//   If     inputs [cond, captures...]             body inputs [captures...], both bodies take all
//   of them Loop   inputs [M, cond, v..., captures...]    body inputs [iteration, cond, v...,
//   captures...] Scan   inputs [state..., scans..., captures...]  body inputs [state..., slices...,
//   captures...] q.fused, q.partition inputs [x...]            body inputs [x...]
// The int attribute `q.captures` of Loop and Scan is the number of trailing captures (default 0).
#pragma once

#include <set>
#include <string>
#include <utility>

#include "common/ops/op.h"

namespace quench::ops {

// The carried dims, as (node, kCarriedDim + 16 * index + axis), that were seen to change while a graph
// is inferred. A loop around infers its body again: what changed there changes again, so that loops
// within one another cost the product of their depths and not a power of two.
using ChangingDims = std::set<std::pair<std::string, int>>;

// Gives the inputs of the node's bodies their types and infers the bodies in place. A dim of a
// loop-carried value that changes from one iteration to the next becomes RuntimeDim(kCarriedDim +
// 16 * index + axis) of the node: on entry to an iteration the current size, after the loop the
// final one. Nodes without bodies: nothing.
inline constexpr int kCarriedDim = 1000;
absl::Status InferBodies(Graph& graph, Node& node, InferContext& context, ChangingDims& changing);
// InferGraph of op.h, for a body.
absl::Status InferGraph(Graph& graph, ChangingDims& changing);

// Number of loop-carried values of a Loop or Scan node.
int CarriedCount(const Node& node);
// Trailing captures, from `q.captures`.
int CaptureCount(const Node& node);

// Why a branch of an If cannot run, when inference has put a `q.fail` in its place; else "".
std::string FailureOf(const Graph& body);

}  // namespace quench::ops
