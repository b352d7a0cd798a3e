#include "common/steps/main.h"

#include "services/analyser/service.h"

int main(int argc, char** argv) {
  return quench::steps::ServiceMain(argc, argv, quench::analyser::AnalyserDefinition());
}
