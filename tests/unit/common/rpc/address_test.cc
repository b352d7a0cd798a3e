#include "common/rpc/address.h"

#include <gtest/gtest.h>

namespace quench::rpc::address_test {
namespace {

TEST(AddressTest, CallersOnThisMachine) {
  for (const char* here :
       {"unix:", "unix:/run/quench.sock", "ipv4:127.0.0.1:4711", "ipv6:[::1]:4711",
        "ipv6:%5B::1%5D:4711", "ipv6:%5B::ffff:127.0.0.1%5D:4711"}) {
    EXPECT_TRUE(IsLocalPeer(here)) << here;
  }
  for (const char* elsewhere : {"", "ipv4:10.0.0.1:4711", "ipv4:1.127.0.1:4711", "ipv6:[::2]:4711",
                                "ipv6:%5B::ffff:10.0.0.1%5D:4711", "ipv6:[::1:2]:4711"}) {
    EXPECT_FALSE(IsLocalPeer(elsewhere)) << elsewhere;
  }
}

TEST(AddressTest, AMachineHasOneNameWhateverItsPort) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.1:4711"), "ipv4:10.0.0.1");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::2%5D:4711"), "ipv6:%5B::2%5D");
  EXPECT_EQ(HostOfPeer("unix:"), HostOfPeer("unix:/run/quench.sock"));
}

}  // namespace
}  // namespace quench::rpc::address_test
