#include "common/steps/main.h"

#include "services/quantizer/service.h"

int main(int argc, char** argv) {
  return quench::steps::ServiceMain(argc, argv, quench::quantizer::QuantizerDefinition());
}
