#include "common/steps/main.h"

#include "services/importer/service.h"

int main(int argc, char** argv) {
  return quench::steps::ServiceMain(argc, argv, quench::importer::ImporterDefinition());
}
