#include "services/cli/cli.h"

int main(int argc, char** argv) { return quench::cli::Main(argc, argv); }
