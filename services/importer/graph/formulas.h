// Functions that the catalogue lacks, composed of operators that it has, for several formats.
#pragma once

#include "services/importer/graph/converter.h"

namespace quench::importer {

// log(1 + x) and exp(x) - 1 of floats to full precision, also for small x, where computing the sum or the
// difference would round digits off.
ValueId Log1pOf(Converter& c, ValueId x);
ValueId Expm1Of(Converter& c, ValueId x);

}  // namespace quench::importer
