#include "common/rpc/jwt.h"

#include <absl/time/clock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/callers.h"
#include "common/rpc/errors.h"
#include "common/rpc/http_get.h"
#include "tests/support/certificates.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/common/rpc/token_issuer.h"

namespace quench::rpc::jwt_test {
namespace {

using quench::testing::HasSubstr;
using quench::testing::WaitFor;
using std::chrono::milliseconds;

constexpr char kIssuer[] = "https://issuer.example";
constexpr char kHere[] = "quench.example";

// Claims of a token that is good for ten minutes; `more` comes last, and so counts.
std::string Claims(const std::string& more = R"("tenant":"red")") {
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  return fmt::format(
      R"({{"iss":"{}","aud":"{}","sub":"repo:our/net","iat":{},"nbf":{},"exp":{},{}}})", kIssuer,
      kHere, now, now, now + 600, more);
}

class JwtTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteKeys({rsa_.Jwk(), ec_.Jwk()}); }
  void WriteKeys(const std::vector<std::string>& jwks) {
    ASSERT_TRUE(WriteFileAtomically(file_, KeySet(jwks)).ok());
  }
  JwtVerifier::Options Options() {
    JwtVerifier::Options options;
    options.issuer = kIssuer;
    options.audience = kHere;
    options.keys.file = file_;
    options.keys.registry = &registry_;
    return options;
  }
  absl::StatusOr<Caller> CallerOf(const std::string& token, const JwtVerifier::Options& options) {
    QUENCH_ASSIGN_OR_RETURN(const auto verifier, JwtVerifier::Open(options));
    return verifier->CallerOf(token, absl::Now());
  }
  absl::StatusOr<Caller> CallerOf(const std::string& token) { return CallerOf(token, Options()); }
  void Refused(const std::string& token, const std::string& why,
               const std::string& reason = "TOKEN_INVALID") {
    const absl::Status status = CallerOf(token).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_EQ(ReasonOf(status), reason) << why;
    EXPECT_THAT(MessageOf(status), HasSubstr(why));
  }

  const TempDir folder_ = *TempDir::Create();
  const std::filesystem::path file_ = folder_.path() / "keys.json";
  metrics::Registry registry_;
  static inline const SigningKey rsa_ = SigningKey::Rsa("r1"), ec_ = SigningKey::Ec("e1"),
                                 other_ = SigningKey::Rsa("r1");
};

TEST_F(JwtTest, TheClaimSaysTheTenant) {
  for (const SigningKey* key : {&rsa_, &ec_}) {
    const auto caller = CallerOf(key->Sign(Claims()));
    ASSERT_TRUE(caller.ok()) << caller.status();
    EXPECT_EQ(*caller, (Caller{"red", CallerRole::kUser, "repo:our/net"}));
  }
  EXPECT_GT(registry_.Get(metrics::kIssuerKeysFetched).Value(), 1e9);
  auto options = Options();
  options.tenant_claim = "team";
  EXPECT_EQ(CallerOf(rsa_.Sign(Claims(R"("team":"blue")")), options)->tenant, "blue");
  Refused(rsa_.Sign(Claims(R"("x":1)")), "`tenant` is ``: must be a tenant");
  Refused(rsa_.Sign(Claims(R"("tenant":"Red")")), "must be a tenant");
  Refused(rsa_.Sign(Claims(R"("tenant":["red"])")), "must be a tenant");
  Refused(rsa_.Sign(Claims(R"("tenant":"gateway")")), "must be a tenant");
}

TEST_F(JwtTest, RulesSayTenantAndRole) {
  auto options = Options();
  options.rules = {{"repository", "our/release", "red", CallerRole::kOperator},
                   {"repository", "our/*", "red", std::nullopt},
                   {"groups", "look*", "blue", CallerRole::kViewer}};
  options.role_claim = "role";
  const auto as = [&](const std::string& claims) {
    return CallerOf(rsa_.Sign(Claims(claims)), options);
  };
  EXPECT_EQ(as(R"("repository":"our/release")")->role, CallerRole::kOperator);
  EXPECT_EQ(as(R"("repository":"our/net")")->role, CallerRole::kUser);
  EXPECT_EQ(as(R"("repository":"our/net","role":"viewer")")->role, CallerRole::kViewer);
  EXPECT_EQ(as(R"("repository":"our/net","role":"")")->role, CallerRole::kUser);
  EXPECT_EQ(as(R"("groups":["dev","lookers"])")->tenant, "blue");
  EXPECT_EQ(as(R"("groups":["lookers"],"role":"operator")")->role, CallerRole::kViewer);
  for (const char* none : {R"("repository":"ours/net")", R"("repository":"evil/our/net")",
                           R"("repository":7)", R"("tenant":"red")"}) {
    EXPECT_THAT(MessageOf(as(none).status()), HasSubstr("no rule here gives it a tenant")) << none;
  }
  EXPECT_THAT(MessageOf(as(R"("repository":"our/net","role":"root")").status()),
              HasSubstr("`role` must be viewer, user or operator, it is `root`"));
  EXPECT_FALSE(as(R"("repository":"our/net","role":["operator"])").ok());
  options.tenant_claim = "tenant";
  EXPECT_EQ(as(R"("tenant":"green")")->tenant, "green") << "where no rule matches";
}

TEST_F(JwtTest, AnotherIssuersOrServersTokensAreRefused) {
  Refused(rsa_.Sign(Claims(R"("iss":"https://other.example","tenant":"red")")),
          "issuer is `https://other.example`: must be `https://issuer.example`");
  Refused(rsa_.Sign(Claims(R"("aud":"other.example","tenant":"red")")),
          "is for `other.example`: must be for `quench.example`");
  Refused(rsa_.Sign(Claims(R"("aud":["a","b"],"tenant":"red")")), "is for `a, b`");
  Refused(rsa_.Sign(Claims(R"("aud":null,"tenant":"red")")), "is for ``");
  EXPECT_TRUE(CallerOf(rsa_.Sign(Claims(R"("aud":["a","quench.example"],"tenant":"red")"))).ok());
}

TEST_F(JwtTest, TokensHaveTheirTime) {
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  const auto at = [&](const std::string& claim, int64_t from_now) {
    return rsa_.Sign(Claims(fmt::format(R"("{}":{},"tenant":"red")", claim, now + from_now)));
  };
  Refused(at("exp", -61), "expired at", "TOKEN_EXPIRED");
  EXPECT_TRUE(CallerOf(at("exp", -50)).ok()) << "clocks differ";
  Refused(at("nbf", 70), "the token begins at");
  EXPECT_TRUE(CallerOf(at("nbf", 50)).ok());
  for (const char* none : {R"("exp":null,)", R"("exp":"tomorrow",)", R"("exp":1e300,)"})
    Refused(rsa_.Sign(Claims(none + std::string(R"("tenant":"red")"))), "no time `exp`");
  Refused(rsa_.Sign(Claims(R"("nbf":"now","tenant":"red")")), "`nbf` is no time");
  Refused(rsa_.Sign(R"({"iss":"https://issuer.example","aud":"quench.example","tenant":"red"})"),
          "no time `exp`");
}

TEST_F(JwtTest, OnlySignaturesByTheIssuersKeysCount) {
  Refused(other_.Sign(Claims()), "signature is wrong");
  const std::string good = rsa_.Sign(Claims()), last = good.substr(good.rfind('.'));
  const std::string head = good.substr(0, good.find('.'));
  Refused(head + "." + Base64Url(Claims(R"("tenant":"blue")")) + last, "signature is wrong");
  Refused(head + "." + Base64Url(Claims()) + ".", "");
  for (const char* none : {"none", "None", "HS256", "HS512", "RS384", "PS256", "EdDSA", ""}) {
    const std::string header = fmt::format(R"({{"alg":"{}","kid":"r1"}})", none);
    Refused(rsa_.Sign(Claims(), header), "");
    Refused(Base64Url(header) + "." + Base64Url(Claims()) + ".", "");
  }
  // The public key is no secret: it must not pass for one of HMAC, nor for another kind of key.
  Refused(ec_.Sign(Claims(), R"({"alg":"RS256","kid":"e1"})"), "no key `e1` for RS256");
  Refused(rsa_.Sign(Claims(), R"({"alg":"ES256","kid":"r1"})"), "no key `r1` for ES256");
  Refused(rsa_.Sign(Claims(), R"({"alg":"RS256","kid":"r1","crit":["b64"],"b64":false})"), "crit");
  Refused(rsa_.Sign(Claims(), R"({"alg":"RS256","kid":"nobody"})"), "no key `nobody`");
  Refused(rsa_.Sign("no claims"), "no claims");
  Refused(rsa_.Sign("[]"), "no claims");
  Refused("ey..", "");
  for (const char* malformed :
       {"eyJ.eyJ.x", "ey.ey.", "ey.ey", "ey.e=.ey", "eyJh.eyJh.a",
        "eyJh.eyJh.a===", "eyJ+.eyJh.eyJh", "eyJh.eyJh.eyJh.eyJh", "", "..."}) {
    Refused(malformed, "not a signed JSON Web Token");
  }
  Refused("ey." + std::string(20'000, 'a') + ".a", "more than");
}

TEST_F(JwtTest, ATokenThatIsChangedAnywhereIsRefused) {
  const auto verifier = *JwtVerifier::Open(Options());
  std::minstd_rand random(1);
  const auto any = [&](size_t count) { return random() % count; };
  const std::string good = ec_.Sign(Claims());
  for (int i = 0; i < 5000; ++i) {
    std::string token = good;
    switch (any(3)) {
      case 0:  // a quarter of the bits at the end of a part may be of no meaning
        for (size_t at = any(token.size()); token == good; at = any(token.size())) {
          if (at + 1 < token.size() && token[at] != '.' && token[at + 1] != '.')
            token[at] = static_cast<char>(any(256));
        }
        break;
      case 1:
        token.resize(any(token.size() - 1));
        break;
      default:
        token.insert(any(token.size()), 1 + any(8), static_cast<char>(any(256)));
    }
    const auto caller = verifier->CallerOf(token, absl::Now());
    ASSERT_FALSE(caller.ok()) << token;
    ASSERT_EQ(caller.status().code(), absl::StatusCode::kUnauthenticated) << token;
  }
}

TEST_F(JwtTest, ATokenWithoutAKeysNameNeedsAnIssuerWithOneKey) {
  const std::string token = rsa_.Sign(Claims(), R"({"alg":"RS256"})");
  EXPECT_TRUE(CallerOf(token).ok());
  WriteKeys({rsa_.Jwk(), SigningKey::Rsa("r2").Jwk()});
  Refused(token, "has not just one");
}

TEST_F(JwtTest, KeysThatAreForNothingHereAreLeftOut) {
  WriteKeys({rsa_.Jwk(R"(,"use":"sig","alg":"RS256")"), ec_.Jwk(R"(,"use":"enc")"),
             SigningKey::Ec("e3", "P-384").Jwk(), SigningKey::Rsa("weak", 1024).Jwk(),
             R"({"kty":"oct","kid":"o","k":"c2VjcmV0"})", R"({"kty":"RSA","kid":"bad"})",
             R"({"kty":"RSA","kid":"bad","n":"a","e":"AQAB"})",
             R"({"kty":"RSA","kid":"bad","n":"AQAB===","e":"AQ=B"})",
             R"({"kty":"EC","kid":"bad","crv":"P-256","x":"AQAB","y":"AQAB"})",
             R"({"kty":"EC","kid":"bad","crv":"P-256","x":7,"y":"="})", "7"});
  EXPECT_TRUE(CallerOf(rsa_.Sign(Claims())).ok());
  Refused(ec_.Sign(Claims()), "no key `e1`");
  for (const std::string& bad : std::vector<std::string>{
           std::string(), std::string("{}"), std::string("[]"), KeySet({}),
           KeySet({ec_.Jwk(R"(,"use":"enc")")}), KeySet({rsa_.Jwk(R"(,"alg":"RS512")")})}) {
    ASSERT_TRUE(WriteFileAtomically(file_, bad).ok());
    const absl::Status status = JwtVerifier::Open(Options()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(MessageOf(status), HasSubstr("keys.json")) << bad;
  }
}

TEST_F(JwtTest, AFileOfKeysIsReadAgain) {
  const auto verifier = *JwtVerifier::Open(Options());
  EXPECT_TRUE(verifier->CallerOf(rsa_.Sign(Claims()), absl::Now()).ok());
  WriteKeys({other_.Jwk()});
  EXPECT_FALSE(verifier->CallerOf(rsa_.Sign(Claims()), absl::Now()).ok());
  EXPECT_TRUE(verifier->CallerOf(other_.Sign(Claims()), absl::Now()).ok());
  ASSERT_TRUE(WriteFileAtomically(file_, "nothing").ok());
  EXPECT_TRUE(verifier->CallerOf(other_.Sign(Claims()), absl::Now()).ok());
}

class JwtFetchTest : public JwtTest {
 protected:
  JwtFetchTest() {
    server_.Serve(KeySet({rsa_.Jwk()}));
    options_ = Options();
    options_.keys.file.clear();
    options_.keys.url = server_.url();
  }
  absl::Status Ask(const JwtVerifier& verifier, const SigningKey& key) {
    return verifier.CallerOf(key.Sign(Claims()), absl::Now()).status();
  }
  bool Comes(const JwtVerifier& verifier, const SigningKey& key) {
    return WaitFor([&] { return Ask(verifier, key).ok(); });
  }
  KeyServer server_;
  JwtVerifier::Options options_;
};

TEST_F(JwtFetchTest, KeysAreFetchedBesideTheCalls) {
  options_.keys.max_age = milliseconds(100);
  const auto verifier = *JwtVerifier::Open(options_);
  EXPECT_TRUE(Comes(*verifier, rsa_));
  EXPECT_TRUE(WaitFor([&] { return server_.requests() >= 3; }));
  server_.Serve(KeySet({other_.Jwk()}));
  EXPECT_TRUE(Comes(*verifier, other_));
  EXPECT_FALSE(Ask(*verifier, rsa_).ok()) << "a key that is withdrawn";
}

TEST_F(JwtFetchTest, ANewKeyIsAskedForOnceInAWhile) {
  options_.keys.pause = milliseconds(300);
  const auto verifier = *JwtVerifier::Open(options_);
  ASSERT_TRUE(Comes(*verifier, rsa_));
  const SigningKey next = SigningKey::Ec("e9");
  server_.Serve(KeySet({rsa_.Jwk(), next.Jwk()}));
  std::this_thread::sleep_for(options_.keys.pause);
  EXPECT_EQ(server_.requests(), 1);
  EXPECT_EQ(Ask(*verifier, next), absl::OkStatus()) << "the call itself waits for it";
  EXPECT_EQ(server_.requests(), 2);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ReasonOf(Ask(*verifier, SigningKey::Ec("made up"))), "TOKEN_INVALID");
    EXPECT_EQ(Ask(*verifier, rsa_), absl::OkStatus());
  }
  EXPECT_LE(server_.requests(), 4);
}

TEST_F(JwtFetchTest, AnIssuerThatIsDownLeavesTheKeys) {
  options_.keys.max_age = options_.keys.pause = milliseconds(50);
  options_.keys.lifetime = milliseconds(1500);
  const auto verifier = *JwtVerifier::Open(options_);
  ASSERT_TRUE(Comes(*verifier, rsa_));
  server_.Fail(true);
  const int before = server_.requests();
  ASSERT_TRUE(WaitFor([&] { return server_.requests() > before + 3; }));
  EXPECT_EQ(Ask(*verifier, rsa_), absl::OkStatus());
  EXPECT_TRUE(WaitFor([&] { return !Ask(*verifier, rsa_).ok(); }));
  const absl::Status over = Ask(*verifier, rsa_);
  EXPECT_EQ(over.code(), absl::StatusCode::kUnavailable) << over;
  EXPECT_TRUE(RetryAfterOf(over).has_value());
  server_.Fail(false);
  EXPECT_TRUE(Comes(*verifier, rsa_));
  server_.Serve("no keys");
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(Ask(*verifier, rsa_), absl::OkStatus()) << "neither does one that talks nonsense";
}

TEST_F(JwtFetchTest, BeforeTheFirstKeysCallsComeAgain) {
  server_.Fail(true);
  options_.keys.pause = milliseconds(50);
  const auto verifier = *JwtVerifier::Open(options_);
  const absl::Status early = Ask(*verifier, rsa_);
  EXPECT_EQ(early.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryAfterOf(early).has_value());
  server_.Fail(false);
  EXPECT_TRUE(Comes(*verifier, rsa_));
}

TEST_F(JwtFetchTest, CallersBringEitherKindOfToken) {
  const auto tokens = folder_.path() / "tokens";
  ASSERT_TRUE(WriteFileAtomically(tokens, "blue " + Sha256Hex("a.b.c") + " role=viewer\n").ok());
  const auto both = *Callers::Open({tokens, {}, false, options_});
  EXPECT_TRUE(WaitFor([&] { return both->CallerOf("Bearer " + rsa_.Sign(Claims()), {}).ok(); }));
  EXPECT_EQ(both->CallerOf("Bearer a.b.c", {})->tenant, "blue");
  EXPECT_EQ(ReasonOf(both->CallerOf("Bearer x", {}).status()), "TOKEN_INVALID");
  EXPECT_EQ(ReasonOf(both->CallerOf("", {}).status()), "TOKEN_MISSING");
  const auto only = *Callers::Open({{}, {{"red.example", {"red"}}}, false, options_});
  EXPECT_EQ(ReasonOf(only->CallerOf("", {}).status()), "TOKEN_MISSING");
  EXPECT_EQ(ReasonOf(only->CallerOf("Bearer a.b.c", {}).status()), "TOKEN_INVALID");
  EXPECT_EQ(only->CallerOf("", {"red.example"})->tenant, "red");
}

TEST(HttpGetTest, TakesHttpsOrThisMachine) {
  for (const char* good : {"https://a.example/keys", "https://a.example", "http://127.0.0.1:1/k",
                           "http://localhost/k", "http://[::1]:80/k"}) {
    EXPECT_EQ(CheckUrl(good), absl::OkStatus()) << good;
  }
  for (const char* bad : {"", "a.example", "http://a.example/keys", "ftp://127.0.0.1/", "https://",
                          "https:///keys", "https://user:word@a.example/", "https://a.example/ k",
                          "http://localhost.a.example/k", "http://127.0.0.1@a.example/"}) {
    EXPECT_EQ(CheckUrl(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(HttpGetTest, SaysWhyItFailed) {
  KeyServer server;
  server.Serve(std::string(5000, 'x'));
  HttpGetOptions options;
  EXPECT_EQ(HttpGet(server.url(), options)->size(), 5000u);
  options.max_bytes = 4999;
  EXPECT_EQ(HttpGet(server.url(), options).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(HttpGet(server.url() + "/none", options).status()), HasSubstr("404"));
  EXPECT_EQ(HttpGet("http://127.0.0.1:1/", options).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(HttpGetTest, ChecksWhoAnswers) {
  const TempDir folder = *TempDir::Create();
  const quench::testing::Authority authority("an authority"), stranger("a stranger");
  const std::string server = folder.path() / "server", other = folder.path() / "other";
  quench::testing::WritePair(server, authority.Issue("keys"));
  quench::testing::WritePair(other,
                             authority.Issue("keys", std::chrono::hours(1), "DNS:a.example"));
  HttpGetOptions options;
  options.ca_file = folder.path() / "ca";
  ASSERT_TRUE(WriteFileAtomically(options.ca_file, authority.certificate()).ok());
  KeyServer good(server), misnamed(other);
  good.Serve("keys");
  EXPECT_EQ(*HttpGet(good.url(), options), "keys");
  EXPECT_EQ(HttpGet(misnamed.url(), options).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(HttpGet(good.url(), {}).ok()) << "the system does not know this authority";
  ASSERT_TRUE(WriteFileAtomically(options.ca_file, stranger.certificate()).ok());
  EXPECT_FALSE(HttpGet(good.url(), options).ok());
  options.ca_file = folder.path() / "none";
  EXPECT_FALSE(HttpGet(good.url(), options).ok());
}

TEST(GlobTest, StarsAndQuestionMarks) {
  for (const auto& [pattern, text] :
       std::vector<std::pair<const char*, const char*>>{{"*", ""},
                                                        {"*", "a/b"},
                                                        {"a*", "a"},
                                                        {"a*b*c", "a/b/c"},
                                                        {"*b", "ab"},
                                                        {"a?c", "abc"},
                                                        {"a*bc", "abcbc"},
                                                        {"our/*", "our/net"},
                                                        {"a[b]", "a[b]"},
                                                        {"**a", "a"}}) {
    EXPECT_TRUE(MatchesGlob(pattern, text)) << pattern << " " << text;
  }
  for (const auto& [pattern, text] :
       std::vector<std::pair<const char*, const char*>>{{"", "a"},
                                                        {"a", ""},
                                                        {"a", "ab"},
                                                        {"a?c", "ac"},
                                                        {"our/*", "evil/our/net"},
                                                        {"a*b", "abc"},
                                                        {"?", ""},
                                                        {"[ab]", "a"}}) {
    EXPECT_FALSE(MatchesGlob(pattern, text)) << pattern << " " << text;
  }
}

}  // namespace
}  // namespace quench::rpc::jwt_test
