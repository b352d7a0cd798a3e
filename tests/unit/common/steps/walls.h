// Walls of a sandbox that can be built where these tests run.
#pragma once

namespace quench::steps {

// Tried once, by a process that enters them.
unsigned WallsHere();

}  // namespace quench::steps
