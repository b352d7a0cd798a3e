// A step that does what its request's `uuid` says: one word, and its argument behind a colon.
#pragma once

#include "common/steps/step.h"
#include "quench/codegen/v1/codegen.pb.h"

namespace quench::steps {

// echo: gives a library whose blob is the argument. fail, crash, exit, spin, sleep, hang, stdout,
// progress, memory:MIB, input (the blob of `library`), late (the same, once its file `go` is there), file:MIB, files:COUNT, leave, open, load, loose, environment,
// lie:HASH, forge, and what TryEscape knows.
const Step& TestStep();
// The same step, never cached.
const Step& UncachedTestStep();

// One that may start processes.
const Step& ForkingTestStep();

codegen::v1::PackageRequest TestRequest(const std::string& what);

}  // namespace quench::steps
