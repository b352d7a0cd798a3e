#include "common/steps/main.h"

#include "services/codegen/service.h"

int main(int argc, char** argv) {
  return quench::steps::ServiceMain(argc, argv, quench::codegen::CodegenDefinition());
}
