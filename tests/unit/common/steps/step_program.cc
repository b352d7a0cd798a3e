#include <array>
#include <cstring>

#include "common/steps/child.h"
#include "tests/unit/common/steps/test_steps.h"

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], quench::steps::kChildArgument) != 0) return 2;
  const std::array steps = {quench::steps::TestStep(), quench::steps::ForkingTestStep()};
  return quench::steps::RunAsChild(steps);
}
