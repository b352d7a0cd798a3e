#include "common/base/users_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::users_socket_test {
namespace {

class UsersSocketTest : public ::testing::Test {
 protected:
  UsersSocketTest() {
    for (const char* name : {"XDG_RUNTIME_DIR", "XDG_STATE_HOME"}) ::unsetenv(name);
    ::setenv("HOME", folder_.path().c_str(), 1);
  }
  mode_t ModeOf(const std::string& name) const {
    struct stat status{};
    EXPECT_EQ(::stat((folder_.path() / name).c_str(), &status), 0);
    return status.st_mode & 0777;
  }
  TempDir folder_ = *TempDir::Create();
  std::string root_ = folder_.path().string();
};

TEST_F(UsersSocketTest, IsWhereTheEnvironmentSays) {
  EXPECT_EQ(*UsersSocket(), "unix:" + root_ + "/.local/state/quench/run/gateway.sock");
  ::setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(*UsersSocket(), "unix:/state/quench/run/gateway.sock");
  ::setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(*UsersSocket(), "unix:/state/quench/run/gateway.sock");
  ::setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
  EXPECT_EQ(*UsersSocket(), "unix:/run/user/1000/quench/gateway.sock");
  for (const char* name : {"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"}) ::unsetenv(name);
  EXPECT_EQ(UsersSocket().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(UsersSocketTest, ItsFolderIsTheUsersOnly) {
  ::setenv("XDG_RUNTIME_DIR", root_.c_str(), 1);
  const std::string socket = *UsersSocket();
  ASSERT_EQ(MakeFolderOf(socket), absl::OkStatus());
  EXPECT_EQ(ModeOf("quench"), 0700u);
  EXPECT_EQ(MakeFolderOf(socket), absl::OkStatus()) << "as it is";
  ASSERT_EQ(::chmod((folder_.path() / "quench").c_str(), 0750), 0);
  const absl::Status open = MakeFolderOf(socket);
  EXPECT_EQ(open.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(MessageOf(open).find("mode 0700"), std::string::npos) << open;
  std::filesystem::remove(folder_.path() / "quench");
  ASSERT_EQ(::mkdir((folder_.path() / "elsewhere").c_str(), 0700), 0);
  std::filesystem::create_symlink("elsewhere", folder_.path() / "quench");
  EXPECT_EQ(MakeFolderOf(socket).code(), absl::StatusCode::kPermissionDenied) << "a link";
}

}  // namespace
}  // namespace quench::users_socket_test
