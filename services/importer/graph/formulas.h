// Functions that the catalogue of operators lacks, of those that it has: for operators of several formats.
#pragma once

#include "services/importer/graph/converter.h"

namespace quench::importer {

// log(1 + x) and exp(x) - 1 of floats with the digits that a number has, for small x too, where the sum or the
// difference alone would round them off.
ValueId Log1pOf(Converter& c, ValueId x);
ValueId Expm1Of(Converter& c, ValueId x);

}  // namespace quench::importer
