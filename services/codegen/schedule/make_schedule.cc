#include "services/codegen/schedule/make_schedule.h"

#include "common/base/status.h"
#include "services/codegen/schedule/collapse.h"
#include "services/codegen/schedule/device_lanes.h"
#include "services/codegen/schedule/physical_index.h"
#include "services/codegen/schedule/schedule.h"
#include "services/codegen/schedule/shared_loops.h"
#include "services/codegen/schedule/tasks.h"
#include "services/codegen/schedule/vectorise.h"
#include "services/codegen/schedule/window.h"

namespace quench::codegen {

absl::StatusOr<Schedule> MakeSchedule(const loops::Function& function,
                                      std::span<const Layout> layouts, SymbolTable& symbols,
                                      const Target& target, bool vectorise) {
  Schedule schedule;
  schedule.function = function;
  QUENCH_RETURN_IF_ERROR(ApplyLayouts(layouts, schedule));
  if (vectorise) {
    SplitFlattenedLoops(schedule.function);  // indices by division would hide what is contiguous
    DropUnitLoops(
        schedule
            .function);  // loops of one iteration would hide that their neighbours are contiguous
    SplitBlockedLoops(schedule.function);  // block lanes become loops of their own: unit-stride
    MoveBlockLanesInside(
        schedule.function);  // and innermost, so that the loops around them can merge
    CollapseLoops(schedule.function,
                  schedule.fill,  // long loops: few tails, no inner loop overhead
                  /*reductions=*/target.gpu.has_value());
  }
  if (vectorise && !target.gpu) {
    SplitWindows(schedule.function);  // interiors have constant windows; borders stay apart
    ChooseLanes(target, schedule);
    SplitFlatLoops(schedule);  // a flat loop of lanes becomes tasks of some thousand elements
  }
  // Threads take neighbours together, which must be cut before the other loops become tasks.
  if (vectorise && target.gpu) ChooseDeviceLanes(*target.gpu, symbols, schedule);
  ChooseTasks(symbols, schedule, /*all=*/target.gpu.has_value());
  if (vectorise && target.gpu) ChooseSharedLoops(*target.gpu, symbols, schedule);
  return schedule;
}

}  // namespace quench::codegen
