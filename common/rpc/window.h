// The amount of a stream that may be in transit.
#pragma once

#include <grpc/grpc.h>

namespace quench::rpc {

// By default gRPC receives 16 MiB and more of each stream before the receiver asks for it, memory that a
// receiver slower than the network cannot account for. Two chunks keep a link of 100 ms busy
// at 20 MB/s for each stream. `set`(name, value) sets a channel argument.
template <typename Set>
void SetWindow(Set set) {
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 2 << 20);
}

}  // namespace quench::rpc
