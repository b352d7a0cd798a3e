// Which changes of the wire contracts break clients that were built before them?
#pragma once

#include <google/protobuf/descriptor.pb.h>

#include <string>
#include <vector>

namespace quench {

// A sentence for everything that `before` has and `after` has no more, or has otherwise: files,
// packages, messages, fields, enums, values, services, RPCs, reserved numbers and names. Names count
// too: JSON and generated code have them. Additions and comments break nothing, nor does a move to a
// file of the package that the old one imports publicly. Extensions are not
// looked at: our contracts have none.
std::vector<std::string> FindBreakingChanges(const google::protobuf::FileDescriptorSet& before,
                                             const google::protobuf::FileDescriptorSet& after);

}  // namespace quench
