#include "services/cli/command.h"

int main(int argc, char** argv) { return quench::cli::Main(argc, argv); }
