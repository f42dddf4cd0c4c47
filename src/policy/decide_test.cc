#include "policy/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace carrel::policy {
namespace {

using testing::HasSubstr;
using Outcome = Verdict::Outcome;

NetworkPolicy policy_of(std::string_view text) {
  auto policy = parse_network({"--network", text});
  EXPECT_TRUE(policy.ok()) << text;
  return policy.ok() ? policy.value() : NetworkPolicy();
}

Host host(std::string_view text) { return canonical_host(text).value(); }
IpAddress ip(std::string_view text) { return *IpAddress::parse(text); }

Flow flow(std::string_view name, std::uint16_t port, Evidence evidence = {}) {
  return {host(name), port, std::move(evidence)};
}
Flow tls(std::string_view name, std::uint16_t port, std::string_view sni) {
  return flow(name, port, TlsHello{sni.empty() ? std::nullopt : std::optional(host(sni))});
}
Flow request(std::string_view name, std::uint16_t port, std::string method, std::string path,
             HttpRequest::Over over = HttpRequest::Over::kPlain) {
  return flow(name, port, HttpRequest{over, std::move(method), host(name), port, std::move(path)});
}

Outcome outcome(std::string_view policy, const Flow& asked) {
  return decide(policy_of(policy), asked).outcome;
}

TEST(Decide, NothingIsAllowedByNothing) {
  for (const std::string_view text : {"none", "allow=", "allow=deny:x.org"}) {
    EXPECT_EQ(outcome(text, tls("a.org", 443, "a.org")), Outcome::kDenied) << text;
    EXPECT_EQ(outcome(text, flow("1.1.1.1", 443)), Outcome::kDenied) << text;
    EXPECT_TRUE(may_resolve(policy_of(text), host("a.org")).denied()) << text;
  }
  EXPECT_TRUE(may_dial(policy_of("none"), flow("a.org", 443), ip("1.1.1.1"), {}).denied());
}

TEST(Decide, TheNameInTlsIsTheNameThatWasAskedFor) {
  const std::string_view text = "allow=a.org,b.org";
  EXPECT_EQ(outcome(text, flow("a.org", 443)), Outcome::kNeedsEvidence);
  EXPECT_EQ(outcome(text, tls("a.org", 443, "a.org")), Outcome::kAllowed);
  EXPECT_EQ(outcome(text, tls("a.org", 443, "b.org")), Outcome::kDenied);
  EXPECT_EQ(outcome(text, tls("a.org", 443, "evil.org")), Outcome::kDenied);
  EXPECT_EQ(outcome(text, tls("a.org", 443, "")), Outcome::kDenied);
  EXPECT_EQ(outcome(text, tls("a.org", 443, "10.0.0.1")), Outcome::kDenied);
  EXPECT_EQ(outcome(text, flow("a.org", 443, OpaqueBytes{})), Outcome::kDenied);
  EXPECT_EQ(outcome(text, request("a.org", 443, "GET", "/")), Outcome::kDenied);
}

TEST(Decide, AWildcardIsBelowItsSuffixOnly) {
  const std::string_view text = "allow=*.wild.test";
  for (const std::string_view name : {"a.wild.test", "a.b.wild.test", "A.WILD.TEST."}) {
    EXPECT_EQ(outcome(text, tls(name, 443, name)), Outcome::kAllowed) << name;
    EXPECT_TRUE(may_resolve(policy_of(text), host(name)).allowed()) << name;
  }
  for (const std::string_view name :
       {"wild.test", "evilwild.test", "a.wild.test.evil.test", "a.wild.tes", "wild.test.a"}) {
    EXPECT_EQ(outcome(text, tls(name, 443, name)), Outcome::kDenied) << name;
    EXPECT_TRUE(may_resolve(policy_of(text), host(name)).denied()) << name;
  }
}

TEST(Decide, APortIsAllowedByItself) {
  EXPECT_EQ(outcome("allow=a.org", flow("a.org", 22)), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=tcp:a.org:22", flow("a.org", 22)), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:a.org:22", flow("a.org", 443)), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=tcp:a.org:20-30", flow("a.org", 30)), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:a.org:*", flow("a.org", 65535)), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:a.org:*", flow("a.org", 0)), Outcome::kDenied);
  const Verdict verdict = decide(policy_of("allow=a.org"), flow("a.org", 22));
  EXPECT_THAT(verdict.hint, HasSubstr("other ports"));
}

TEST(Decide, DenyBeatsAllow) {
  EXPECT_EQ(outcome("allow=*.a.org,deny:b.a.org", tls("b.a.org", 443, "b.a.org")),
            Outcome::kDenied);
  EXPECT_EQ(outcome("allow=deny:b.a.org,b.a.org", tls("b.a.org", 443, "b.a.org")),
            Outcome::kDenied);
  EXPECT_EQ(outcome("allow=*.a.org,deny:b.a.org", tls("c.a.org", 443, "c.a.org")),
            Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:a.org:*,deny:a.org:25", flow("a.org", 25)), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=tcp:a.org:*,deny:a.org:25", flow("a.org", 26)), Outcome::kAllowed);
  const Verdict verdict = decide(policy_of("deny=b.org"), flow("b.org", 443));
  EXPECT_EQ(verdict.rule, "deny:b.org");
  EXPECT_TRUE(may_resolve(policy_of("deny=b.org"), host("b.org")).denied());
  EXPECT_TRUE(may_resolve(policy_of("deny=b.org:25"), host("b.org")).allowed());
}

TEST(Decide, ADeniedNameDoesNotHideBehindAnotherOne) {
  EXPECT_EQ(outcome("deny=b.org", flow("a.org", 443)), Outcome::kNeedsEvidence);
  EXPECT_EQ(outcome("deny=b.org", tls("a.org", 443, "b.org")), Outcome::kDenied);
  EXPECT_EQ(outcome("deny=b.org", tls("a.org", 443, "a.org")), Outcome::kAllowed);
  Flow fronted = request("a.org", 80, "GET", "/");
  std::get<HttpRequest>(fronted.evidence).host = host("b.org");
  EXPECT_EQ(outcome("deny=b.org", fronted), Outcome::kDenied);
  EXPECT_EQ(outcome("deny=b.org", flow("a.org", 22, OpaqueBytes{})), Outcome::kAllowed);
}

TEST(Decide, FullIsEveryPublicAddressAndNoOther) {
  EXPECT_EQ(outcome("full", flow("a.org", 22)), Outcome::kAllowed);
  EXPECT_EQ(outcome("full", flow("1.1.1.1", 53)), Outcome::kAllowed);
  for (const std::string_view literal :
       {"10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
        "2002:a00:1::", "fd00::1", "198.18.0.7", "0.0.0.0", "::"}) {
    EXPECT_EQ(outcome("full", flow(literal, 80)), Outcome::kDenied) << literal;
    EXPECT_TRUE(may_dial(policy_of("full"), flow("a.org", 80), ip(literal), {}).denied())
        << literal;
    EXPECT_TRUE(
        may_dial(policy_of("allow=tcp:a.org:80"), flow("a.org", 80), ip(literal), {}).denied())
        << literal;
  }
  EXPECT_TRUE(may_dial(policy_of("full"), flow("a.org", 80), ip("1.1.1.1"), {}).allowed());
}

TEST(Decide, AnAddressIsReachedOnlyIfItIsListed) {
  EXPECT_EQ(outcome("allow=a.org", flow("1.1.1.1", 443)), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=1.1.1.1", tls("1.1.1.1", 443, "")), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=1.1.1.1", tls("1.1.1.1", 443, "evil.org")), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=1.1.1.1", tls("1.1.1.2", 443, "")), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=10.0.0.0/8", tls("10.9.9.9", 443, "")), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:10.0.0.5:8080", flow("10.0.0.5", 8080)), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:10.0.0.5:8080", flow("::ffff:10.0.0.5", 8080)), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:10.0.0.5:8080", flow("64:ff9b::a00:5", 8080)), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=tcp:[64:ff9b::]/96:8080,deny:10.0.0.0/8", flow("64:ff9b::a00:5", 8080)),
            Outcome::kDenied);
}

TEST(Decide, MetadataLoopbackAndTheHostAreListedOneByOne) {
  EXPECT_EQ(outcome("allow=tcp:169.254.0.0/16:80", flow("169.254.169.254", 80)), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=tcp:169.254.0.0/16:80", flow("169.254.1.1", 80)), Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:169.254.169.254:80", flow("169.254.169.254", 80)),
            Outcome::kAllowed);
  EXPECT_EQ(outcome("allow=tcp:127.0.0.0/8:80", flow("127.0.0.1", 80)), Outcome::kDenied);
  EXPECT_EQ(outcome("allow=tcp:0.0.0.0:80", flow("0.0.0.0", 80)), Outcome::kDenied);
  const std::vector<IpAddress> own = {ip("10.0.0.2"), ip("5.5.5.5")};
  const auto dials = [&](std::string_view policy, std::string_view to) {
    return may_dial(policy_of(policy), flow("a.org", 80), ip(to), own).allowed();
  };
  EXPECT_FALSE(dials("full", "5.5.5.5"));
  EXPECT_FALSE(dials("full", "64:ff9b::505:505"));
  EXPECT_FALSE(dials("allow=tcp:a.org:80,tcp:10.0.0.0/8:80", "10.0.0.2"));
  EXPECT_TRUE(dials("allow=tcp:a.org:80,tcp:10.0.0.0/8:80", "10.0.0.3"));
  EXPECT_TRUE(dials("allow=tcp:a.org:80,tcp:10.0.0.2:80", "10.0.0.2"));
}

TEST(Decide, AListingAllowsExactlyThatForANameToo) {
  const std::string_view text = "allow=tcp:db.org:5432,tcp:10.0.0.5:5432";
  EXPECT_TRUE(may_dial(policy_of(text), flow("db.org", 5432), ip("10.0.0.5"), {}).allowed());
  EXPECT_TRUE(may_dial(policy_of(text), flow("db.org", 5433), ip("10.0.0.5"), {}).denied());
  EXPECT_TRUE(may_dial(policy_of(text), flow("db.org", 5432), ip("10.0.0.6"), {}).denied());
  // Listed for TLS: not for other bytes.
  const NetworkPolicy https = policy_of("allow=tcp:db.org:443,10.0.0.5");
  EXPECT_TRUE(may_dial(https, flow("db.org", 443), ip("10.0.0.5"), {}).denied());
  EXPECT_TRUE(may_dial(https, tls("db.org", 443, "db.org"), ip("10.0.0.5"), {}).allowed());
  const Verdict verdict =
      may_dial(policy_of("allow=a.org"), tls("a.org", 443, "a.org"), ip("10.0.0.5"), {});
  EXPECT_EQ(verdict.reason, "a.org leads to 10.0.0.5, a private address");
  EXPECT_THAT(verdict.hint, HasSubstr("tcp:10.0.0.5:443"));
}

TEST(Decide, ADeniedAddressIsNotDialledForAName) {
  const NetworkPolicy policy = policy_of("full,deny:1.2.3.0/24");
  EXPECT_TRUE(may_dial(policy, flow("a.org", 443), ip("1.2.3.4"), {}).denied());
  EXPECT_TRUE(may_dial(policy, flow("a.org", 443), ip("64:ff9b::102:304"), {}).denied());
  EXPECT_TRUE(may_dial(policy, flow("a.org", 443), ip("1.2.4.4"), {}).allowed());
  EXPECT_TRUE(may_dial(policy, flow("1.1.1.1", 443), ip("1.2.4.4"), {}).denied());
}

TEST(Decide, RequestsAreReadWhereARuleHasMethodsOrAPath) {
  const std::string_view plain = "allow=http:GET+HEAD:a.org/api/*";
  EXPECT_EQ(outcome(plain, flow("a.org", 80)), Outcome::kNeedsEvidence);
  EXPECT_EQ(outcome(plain, request("a.org", 80, "GET", "/api/x")), Outcome::kAllowed);
  EXPECT_EQ(outcome(plain, request("a.org", 80, "POST", "/api/x")), Outcome::kDenied);
  EXPECT_EQ(outcome(plain, request("a.org", 80, "GET", "/other")), Outcome::kDenied);
  EXPECT_EQ(outcome(plain, request("a.org", 80, "GET", "/api/%2e%2e/x")), Outcome::kDenied);
  EXPECT_EQ(outcome(plain, request("a.org", 80, "GET", "/api/../x")), Outcome::kDenied);
  EXPECT_EQ(outcome(plain, tls("a.org", 80, "a.org")), Outcome::kDenied);
  EXPECT_EQ(outcome(plain, flow("a.org", 80, OpaqueBytes{})), Outcome::kDenied);
  const std::string_view over_tls = "allow=https:GET:a.org/api/*";
  EXPECT_EQ(outcome(over_tls, tls("a.org", 443, "a.org")), Outcome::kNeedsRequests);
  EXPECT_EQ(outcome(over_tls, tls("a.org", 443, "b.org")), Outcome::kDenied);
  const auto kTls = HttpRequest::Over::kTls;
  EXPECT_EQ(outcome(over_tls, request("a.org", 443, "GET", "/api/x", kTls)), Outcome::kAllowed);
  EXPECT_EQ(outcome(over_tls, request("a.org", 443, "PUT", "/api/x", kTls)), Outcome::kDenied);
  EXPECT_EQ(outcome(over_tls, request("a.org", 443, "GET", "/api/x")), Outcome::kDenied);
}

TEST(Decide, ARequestIsForTheHostThatWasDialled) {
  Flow spoofed = request("a.org", 80, "GET", "/");
  std::get<HttpRequest>(spoofed.evidence).host = host("b.org");
  EXPECT_EQ(outcome("allow=http:a.org,http:b.org", spoofed), Outcome::kDenied);
  Flow elsewhere = request("a.org", 80, "GET", "/");
  std::get<HttpRequest>(elsewhere.evidence).port = 8080;
  EXPECT_EQ(outcome("allow=http:a.org:80+8080", elsewhere), Outcome::kDenied);
}

TEST(Decide, ADenialOfRequestsHasToSeeThem) {
  const std::string_view text = "allow=a.org,http:a.org,deny:https:POST:a.org/x/*";
  EXPECT_EQ(outcome(text, flow("a.org", 443)), Outcome::kNeedsEvidence);
  EXPECT_EQ(outcome(text, tls("a.org", 443, "a.org")), Outcome::kNeedsRequests);
  const auto kTls = HttpRequest::Over::kTls;
  EXPECT_EQ(outcome(text, request("a.org", 443, "POST", "/x/y", kTls)), Outcome::kDenied);
  EXPECT_EQ(outcome(text, request("a.org", 443, "GET", "/x/y", kTls)), Outcome::kAllowed);
  EXPECT_EQ(outcome(text, request("a.org", 443, "POST", "/y", kTls)), Outcome::kAllowed);
  EXPECT_EQ(outcome(text, request("a.org", 443, "POST", "/y/%2e%2e/x/y", kTls)), Outcome::kDenied);
  EXPECT_EQ(outcome(text, request("a.org", 80, "POST", "/x/y")), Outcome::kAllowed);
  EXPECT_EQ(
      outcome("allow=tcp:a.org:443,deny:https:POST:a.org/x/*", flow("a.org", 443, OpaqueBytes{})),
      Outcome::kDenied);
}

TEST(Decide, AVerdictSaysWhyAndWhatToDo) {
  const Verdict unknown = decide(policy_of("allow=a.org"), flow("b.org", 443));
  EXPECT_EQ(unknown.reason, "no rule allows b.org:443");
  EXPECT_EQ(unknown.hint, "'b.org' would allow it");
  EXPECT_EQ(unknown.rule, "");
  const Verdict allowed = decide(policy_of("allow=*.a.org"), tls("x.a.org", 443, "x.a.org"));
  EXPECT_EQ(allowed.rule, "*.a.org");
  const Verdict literal = decide(policy_of("full"), flow("10.0.0.5", 5432));
  EXPECT_EQ(literal.reason, "10.0.0.5:5432 is a private address, and no rule lists it");
  EXPECT_EQ(literal.hint, "'tcp:10.0.0.5:5432' would allow it");
}

// Spellings at random: what has a canonical form is decided as that form is, and a spelling that
// has none is decided by nobody.
TEST(Decide, OnTheCanonicalFormIsAsOnTheOriginal) {
  constexpr std::array<std::string_view, 22> kParts = {
      "a",   "A", "org", "ORG",     "wild", ".", "..", "127", "0x7f", "10.0.0.5", "1",
      "::1", "ü", "Ü",   "xn--tda", " ",    "_", "-",  "/",   "@",    "%00",      "evil"};
  const NetworkPolicy policy =
      policy_of("allow=a.org,*.wild.org,tcp:10.0.0.5:443,deny:evil.wild.org,xn--tda.org");
  std::mt19937 random(11);
  std::uniform_int_distribution<std::size_t> part(0, kParts.size() - 1);
  int decided = 0;
  int allowed = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string text;
    for (int left = 1 + i % 5; left > 0; --left) {
      text += kParts.at(part(random));
    }
    const auto original = canonical_host(text);
    if (!original.ok()) {
      continue;
    }
    const auto again = canonical_host(original.value().text());
    ASSERT_TRUE(again.ok()) << text;
    ASSERT_EQ(again.value(), original.value()) << text;
    const Verdict one = decide(policy, {original.value(), 443, TlsHello{original.value()}});
    const Verdict two = decide(policy, {again.value(), 443, TlsHello{again.value()}});
    ASSERT_EQ(one.outcome, two.outcome) << text;
    ASSERT_EQ(one.rule, two.rule) << text;
    ++decided;
    allowed += one.allowed() ? 1 : 0;
    const std::string& name = original.value().text();
    const bool expected = name == "a.org" || name == "10.0.0.5" || name == "xn--tda.org" ||
                          (name.ends_with(".wild.org") && name != "evil.wild.org");
    ASSERT_EQ(one.allowed(), expected) << text;
  }
  EXPECT_GT(decided, 1'000);
  EXPECT_GT(allowed, 10);
}

}  // namespace
}  // namespace carrel::policy
