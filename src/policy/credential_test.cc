#include "policy/credential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/network_narrow.h"

namespace carrel::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Credential read(std::string_view text) {
  auto credential = parse_credential({"--credential", text});
  EXPECT_TRUE(credential.ok()) << credential.error().to_string();
  return credential.ok() ? credential.value() : Credential{};
}

std::string refusal(std::string_view text) {
  const auto credential = parse_credential({"--credential", text});
  return credential.ok() ? "" : credential.error().to_string();
}

Flow request(std::string_view host, std::uint16_t port, HttpRequest::Over over,
             std::string method = "GET", std::string path = "/") {
  HttpRequest asked;
  asked.over = over;
  asked.method = std::move(method);
  asked.host = canonical_host(host).value();
  asked.port = port;
  asked.path = std::move(path);
  return {asked.host, port, asked};
}

TEST(Credential, IsARuleAHeaderAndAValue) {
  const Credential credential =
      read("https:GET+HEAD:API.example.org/v1/*=Authorization: Bearer {{ secret.github }}");
  EXPECT_EQ(rule_text(credential.rule), "https:GET+HEAD:api.example.org/v1/*");
  EXPECT_EQ(credential.header, "authorization");
  EXPECT_EQ(credential.value, "Bearer {{ secret.github }}");
  EXPECT_EQ(read(credential_text(credential)), credential);
}

TEST(Credential, IsForOneNameByHttps) {
  for (const char* text :
       {"*.example.org=A: {{ secret.x }}", "http:example.org=A: {{ secret.x }}",
        "tcp:example.org:443=A: {{ secret.x }}", "deny:example.org=A: {{ secret.x }}",
        "11.1.1.1=A: {{ secret.x }}", "example.org:443+8443=A: {{ secret.x }}",
        "example.org:*=A: {{ secret.x }}"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
}

TEST(Credential, HasASecretAndNoHeaderThatFramesARequest) {
  EXPECT_THAT(refusal("example.org=Authorization: Bearer token"), HasSubstr("no secret in it"));
  EXPECT_THAT(refusal("example.org=Authorization: {{ secret.x"), HasSubstr("has no '}}'"));
  EXPECT_THAT(refusal("example.org=Authorization: {{ env.x }}"), HasSubstr("secret.NAME"));
  EXPECT_THAT(refusal("example.org=Authorization: {{ secret.../x }}"), HasSubstr("not a name"));
  EXPECT_THAT(refusal("example.org=Authorization: {{ secret.x }}\r\nA: b"), HasSubstr("printable"));
  for (const char* header : {"Host", "Content-Length", "Transfer-Encoding", "Connection",
                             "Proxy-Authorization", "Accept-Encoding", "", "a b", "a\r\nb"}) {
    EXPECT_NE(refusal("example.org=" + std::string(header) + ": {{ secret.x }}"), "") << header;
  }
}

TEST(Credential, R249_TemplatesAreFilledInOnceAndAMissingSecretIsAnError) {
  const Credential credential = read("example.org=X: a {{secret.one}} {{ secret.two }} b");
  EXPECT_THAT(secrets_of(credential), ElementsAre("one", "two"));
  const auto filled = fill_in(credential, [](const std::string& name) -> Result<std::string> {
    return std::string(name == "one" ? "{{ secret.two }}" : "2");
  });
  EXPECT_EQ(filled.value(), "a {{ secret.two }} 2 b");
  const auto missing = fill_in(credential, [](const std::string& name) -> Result<std::string> {
    return Error{Code::kNotFound, 0, "there is no secret '" + name + "'", {}};
  });
  EXPECT_THAT(missing.error().message, HasSubstr("'one'"));
}

TEST(Credential, R248_GoesWithTheRealDestinationSchemePortMethodAndPath) {
  using Over = HttpRequest::Over;
  const Credential credential = read("https:GET:example.org/v1/*=X: {{ secret.x }}");
  EXPECT_TRUE(applies(credential, request("example.org", 443, Over::kTls, "GET", "/v1/a")));
  EXPECT_FALSE(applies(credential, request("example.org", 443, Over::kPlain, "GET", "/v1/a")));
  EXPECT_FALSE(applies(credential, request("example.org", 80, Over::kPlain, "GET", "/v1/a")));
  EXPECT_FALSE(applies(credential, request("example.org", 8443, Over::kTls, "GET", "/v1/a")));
  EXPECT_FALSE(applies(credential, request("example.org", 443, Over::kTls, "POST", "/v1/a")));
  EXPECT_FALSE(applies(credential, request("example.org", 443, Over::kTls, "GET", "/v2/a")));
  EXPECT_FALSE(applies(credential, request("example.org", 443, Over::kTls, "GET", "/v1/../a")));
  EXPECT_FALSE(applies(credential, request("sub.example.org", 443, Over::kTls, "GET", "/v1/a")));
  Flow elsewhere = request("example.org", 443, Over::kTls, "GET", "/v1/a");
  elsewhere.host = canonical_host("evil.org").value();
  EXPECT_FALSE(applies(credential, elsewhere));
  Flow otherwise = request("evil.org", 443, Over::kTls, "GET", "/v1/a");
  otherwise.host = canonical_host("example.org").value();
  EXPECT_FALSE(applies(credential, otherwise));
}

TEST(Credential, ItsServerIsAskedByUsAndOnlyByItsName) {
  NetworkPolicy policy = parse_network({"network", "full"}).value();
  policy.credentials.push_back(read("example.org=X: {{ secret.x }}"));
  const Host host = canonical_host("example.org").value();
  EXPECT_EQ(decide(policy, {host, 443, {}}).outcome, Verdict::Outcome::kNeedsEvidence);
  EXPECT_EQ(decide(policy, {host, 443, TlsHello{host}}).outcome, Verdict::Outcome::kNeedsRequests);
  const Host other = canonical_host("other.org").value();
  EXPECT_EQ(decide(policy, {host, 443, TlsHello{other}}).outcome, Verdict::Outcome::kAllowed);
  EXPECT_EQ(decide(policy, {other, 443, TlsHello{other}}).outcome, Verdict::Outcome::kAllowed);
  EXPECT_TRUE(policy.ends_tls());
}

TEST(Credential, IsStoredWithThePolicyAndOfNoUseWithoutIt) {
  NetworkPolicy policy = parse_network({"network", "allow=example.org"}).value();
  policy.credentials.push_back(read("example.org=X: {{ secret.x }}"));
  EXPECT_EQ(network_from_json(network_to_json(policy)).value(), policy);
  EXPECT_TRUE(check_credentials(policy).ok());
  policy.rules.clear();
  EXPECT_FALSE(check_credentials(policy).ok());
}

TEST(Credential, AProjectsFileCannotTakeOne) {
  const NetworkPolicy given = parse_network({"network", "full"}).value();
  NetworkPolicy wanted = given;
  EXPECT_TRUE(network_narrows(given, wanted));
  wanted.credentials.push_back(read("example.org=X: {{ secret.x }}"));
  EXPECT_FALSE(network_narrows(given, wanted));
  EXPECT_TRUE(network_narrows(wanted, given));
}

}  // namespace
}  // namespace carrel::policy
