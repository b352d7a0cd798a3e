#include "common/rpc/unknown_fields.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "tests/support/matchers.h"

namespace quench::rpc::unknown_fields_test {
namespace {

TEST(UnknownFieldsTest, AreFoundWhereverTheyLie) {
  gateway::v1::CreateWorkflowRequest request;
  for (const char* name : {"a", "b"})
    request.mutable_spec()->mutable_steps()->add_steps()->set_name(name);
  EXPECT_EQ(CheckKnownFields(request), absl::OkStatus());
  gateway::v1::StepSpec& step = *request.mutable_spec()->mutable_steps()->mutable_steps(1);
  auto* options = step.mutable_compile();
  options->GetReflection()->MutableUnknownFields(options)->AddVarint(4000, 1);
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(4001, "x");
  // As it arrives.
  gateway::v1::CreateWorkflowRequest arrived;
  ASSERT_TRUE(arrived.ParseFromString(request.SerializeAsString()));
  const absl::Status status = CheckKnownFields(arrived);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_FIELD");
  EXPECT_THAT(MessageOf(status), testing::HasSubstr("`4001`, `spec.steps.steps[1].compile.4000`"));
  EXPECT_EQ(FieldsOf(status).at(1).field, "spec.steps.steps[1].compile.4000");
}

}  // namespace
}  // namespace quench::rpc::unknown_fields_test
