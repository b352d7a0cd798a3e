#include "tests/unit/common/steps/walls.h"

#include "common/base/files.h"
#include "common/steps/child.h"
#include "common/steps/sandbox.h"
#include "quench/child/v1/child.pb.h"

namespace quench::steps {

unsigned WallsHere() {
  static const unsigned walls = [] {
    const TempDir folder = *TempDir::Create();
    metrics::Registry registry;
    child::v1::Order order;
    order.set_inputs(folder.path().string());
    order.set_drafts(folder.path().string());
    order.set_scratch(folder.path().string());
    order.set_walls(WallsOfThisKernel());
    const bool all = RunInChild(STEP_PROGRAM, order, {}, registry, nullptr).ok();
    return all ? order.walls() : order.walls() & ~unsigned{kNamespaces};
  }();
  return walls;
}

}  // namespace quench::steps
