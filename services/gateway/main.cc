#include "services/gateway/main.h"

int main(int argc, char** argv) { return quench::gateway::GatewayMain(argc, argv); }
