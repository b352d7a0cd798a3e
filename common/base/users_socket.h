// The socket that a user's own server listens on, and his clients look for.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace quench {

// `unix:$XDG_RUNTIME_DIR/quench/gateway.sock`; without that variable, `run/gateway.sock` in
// $XDG_STATE_HOME/quench or ~/.local/state/quench. INVALID_ARGUMENT where the environment says
// neither.
absl::StatusOr<std::string> UsersSocket();

// Makes the folder of such an address, mode 0700. PERMISSION_DENIED for one that is there and lets
// others in, or is theirs.
absl::Status MakeFolderOf(const std::string& users_socket);

}  // namespace quench
