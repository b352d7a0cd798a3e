#include "services/gateway/webhooks.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "google/rpc/error_details.pb.h"
#include "quench/config/v1/config.pb.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/gateway/cloud_event.h"
#include "tests/support/matchers.h"

namespace quench::gateway::webhooks_test {
namespace {

using quench::testing::HasSubstr;
using quench::testing::Not;

std::vector<http::Url> Allowed(const std::vector<std::string>& urls) {
  config::v1::Webhooks config;
  for (const std::string& url : urls) config.add_allowed_urls(url);
  const absl::StatusOr<std::vector<http::Url>> allowed = AllowedUrls(config);
  EXPECT_TRUE(allowed.ok()) << allowed.status();
  return allowed.value_or(std::vector<http::Url>{});
}

std::vector<rpc::FieldViolation> Check(const std::vector<std::string>& urls,
                                       const std::vector<std::string>& allowed) {
  v1::WorkflowSpec spec;
  for (const std::string& url : urls) spec.add_webhooks()->set_url(url);
  Violations violations;
  CheckWebhooks(spec.webhooks(), Allowed(allowed), &violations);
  return rpc::FieldsOf(violations.Finish());
}

TEST(WebhooksTest, TakesUrlsThatBeginAsAllowed) {
  EXPECT_TRUE(Check({"https://hooks.example.com/quench/a?b", "http://127.0.0.1:8080/x"},
                    {"https://hooks.example.com/quench/", "http://127.0.0.1:8080"})
                  .empty());
  EXPECT_TRUE(Check({}, {}).empty());
}

TEST(WebhooksTest, NamesEveryFieldThatIsWrong) {
  const std::vector<rpc::FieldViolation> fields =
      Check({"https://hooks.example.com.evil/", "https://hooks.example.com@evil/", "",
             "https://hooks.example.com/" + std::string(2000, 'a')},
            {"https://hooks.example.com"});
  ASSERT_EQ(fields.size(), 4U);
  EXPECT_EQ(fields[0].field, "spec.webhooks[0].url");
  EXPECT_THAT(fields[0].description, HasSubstr("allowed_urls"));
  EXPECT_THAT(fields[1].description, HasSubstr("user information"));
  EXPECT_THAT(fields[2].description, HasSubstr("missing"));
  EXPECT_THAT(fields[3].description, HasSubstr("at most 2000"));
}

TEST(WebhooksTest, ThereAreAtMostFour) {
  const std::string url = "https://a/";
  EXPECT_TRUE(Check({url, url, url, url}, {url}).empty());
  const std::vector<rpc::FieldViolation> fields = Check({url, url, url, url, url}, {url});
  ASSERT_EQ(fields.size(), 1U);
  EXPECT_EQ(fields[0].field, "spec.webhooks");
}

TEST(WebhooksTest, NoneIsAllowedUnlessTheConfigurationSaysSo) {
  const std::vector<rpc::FieldViolation> fields = Check({"https://a/"}, {});
  ASSERT_EQ(fields.size(), 1U);
  EXPECT_THAT(fields[0].description, HasSubstr("posts no events"));
}

TEST(WebhooksTest, BeginningsAreChecked) {
  config::v1::Webhooks config;
  config.add_allowed_urls("https://a/?b");
  config.add_allowed_urls("ftp://a");
  const absl::Status status = AllowedUrls(config).status();
  EXPECT_THAT(MessageOf(status), HasSubstr("allowed_urls[0] has a query"));
  EXPECT_THAT(MessageOf(status), HasSubstr("allowed_urls[1] does not begin"));
}

// The example of the specification's own libraries.
TEST(WebhooksTest, SignsAsStandardWebhooksSay) {
  const absl::StatusOr<std::string> secret = ReadSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
  ASSERT_TRUE(secret.ok()) << secret.status();
  EXPECT_EQ(
      Signature(*secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", R"({"test": 2432232314})"),
      "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(WebhooksTest, SecretsAreLongEnoughAndNeverShown) {
  EXPECT_EQ(*ReadSecret("0123456789abcdefghijklmn\n"), "0123456789abcdefghijklmn");
  for (const char* text : {"", "0123456789abcdefghijklm", "whsec_c2hvcnQ=", "whsec_not base64!!"}) {
    const absl::Status status = ReadSecret(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(MessageOf(status).find("not base64!!"), std::string::npos);
    EXPECT_EQ(MessageOf(status).find("0123"), std::string::npos);
  }
}

// Durations that a service answers may have no form in JSON.
TEST(CloudEventTest, ADurationThatIsNoneKeepsNoEventBack) {
  constexpr int64_t kTooLong = 1'000'000'000'000'000'000;  // seconds
  const auto body = [](const v1::Step& step) {
    const auto events = EventsFor({"https://a/"}, kStepEnded, "1", "/workflows/1", 0, step);
    return events.size() == 1 ? events[0].body : "";
  };
  v1::Step step;
  step.mutable_error()->set_message("later");
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(kTooLong);
  step.mutable_error()->add_details()->PackFrom(retry);
  EXPECT_THAT(body(step), HasSubstr(R"("data":{"error":{"message":"later"}})"));
  EXPECT_THAT(body(step), Not(HasSubstr("retryDelay")));
  step.mutable_execution()->mutable_cpu_time()->set_seconds(kTooLong);
  EXPECT_THAT(body(step), HasSubstr(R"("source":"/workflows/1")"));
  EXPECT_THAT(body(step), HasSubstr(R"("data":null)"));
}

}  // namespace
}  // namespace quench::gateway::webhooks_test
