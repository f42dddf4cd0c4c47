#include "policy/credential.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "policy/rule_match.h"

namespace carrel::policy {
namespace {

constexpr std::string_view kOpen = "{{";
constexpr std::string_view kClose = "}}";
constexpr std::string_view kSecret = "secret.";
constexpr std::size_t kLongestHeader = 64;
constexpr std::size_t kLongestValue = 1024;
constexpr std::string_view kForm =
    "such as 'api.example.org=Authorization: Bearer {{ secret.NAME }}'";

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  while (text.ends_with(' ')) {
    text.remove_suffix(1);
  }
  return text;
}

// Calls `text` with what stands for itself and `name` with each secret's name, in their order.
// Returns what is wrong, as a literal; empty: nothing.
template <typename Text, typename Name>
std::string_view each_part(std::string_view value, Text text, Name name) {
  for (;;) {
    const std::size_t open = value.find(kOpen);
    text(value.substr(0, open));
    if (open == std::string_view::npos) {
      return {};
    }
    value.remove_prefix(open + kOpen.size());
    const std::size_t close = value.find(kClose);
    if (close == std::string_view::npos) {
      return "a '{{' has no '}}'";
    }
    const std::string_view inside = trimmed(value.substr(0, close));
    if (!inside.starts_with(kSecret)) {
      return "between '{{' and '}}' is secret.NAME";
    }
    name(inside.substr(kSecret.size()));
    value.remove_prefix(close + kClose.size());
  }
}

Status check_header(const Given& given, std::string_view header) {
  // What frames a request, or is for one hop, is not anybody's to set.
  constexpr std::array<std::string_view, 12> kTaken = {
      "host",       "content-length",  "transfer-encoding",
      "connection", "keep-alive",      "te",
      "trailer",    "upgrade",         "expect",
      "range",      "accept-encoding", "content-encoding"};
  const bool token = !header.empty() && header.size() <= kLongestHeader &&
                     std::all_of(header.begin(), header.end(),
                                 [](char c) { return is_alphanumeric(c) || c == '-'; });
  if (!token) {
    return bad_value(given, concat({quote(header), " is not the name of a header"}),
                     std::string(kForm));
  }
  if (header.starts_with("proxy-") ||
      std::find(kTaken.begin(), kTaken.end(), header) != kTaken.end()) {
    return bad_value(given, concat({"the header '", header, "' cannot be set"}));
  }
  return {};
}

Status check_value(const Given& given, const Credential& credential) {
  const std::string& value = credential.value;
  const bool plain =
      !value.empty() && value.size() <= kLongestValue &&
      std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!plain) {
    return bad_value(given, "a header's value is printable ASCII", std::string(kForm));
  }
  Status names;
  bool any = false;
  const std::string_view wrong = each_part(
      value, [](std::string_view) {},
      [&](std::string_view name) {
        any = true;
        if (names.ok()) {
          names = check_secret_name({given.name, name});
        }
      });
  if (!wrong.empty()) {
    return bad_value(given, wrong, std::string(kForm));
  }
  CARREL_TRY(names);
  return any ? Status()
             : bad_value(given, "it has no secret in it",
                         "{{ secret.NAME }} is what 'carrel secret set NAME' stored");
}

}  // namespace

Status check_secret_name(const Given& given) {
  const std::string_view name = given.text;
  const bool good = !name.empty() && name.size() <= kLongestSecretName &&
                    is_alphanumeric(name.front()) &&
                    std::all_of(name.begin(), name.end(),
                                [](char c) { return is_alphanumeric(c) || c == '-' || c == '_'; });
  return good ? Status()
              : bad_value(given, "not a name for a secret",
                          "letters, digits, '-' and '_', 64 at most");
}

Result<Credential> parse_credential(const Given& given) {
  const std::size_t equals = given.text.find('=');
  const std::size_t colon =
      equals == std::string_view::npos ? equals : given.text.find(':', equals);
  if (colon == std::string_view::npos) {
    return bad_value(given, "not RULE=HEADER: VALUE", std::string(kForm));
  }
  Credential credential;
  CARREL_ASSIGN(credential.rule, parse_rule({given.name, given.text.substr(0, equals)}));
  const auto* host = std::get_if<Host>(&credential.rule.target);
  const std::vector<PortRange>& ports = credential.rule.ports;
  if (credential.rule.action != NetworkRule::Action::kAllow ||
      credential.rule.kind != NetworkRule::Kind::kHttps || host == nullptr || ports.size() != 1 ||
      ports.front().first != ports.front().last) {
    return bad_value(given, "a credential is for one name and port, by https", std::string(kForm));
  }
  credential.header = lower(trimmed(given.text.substr(equals + 1, colon - equals - 1)));
  credential.value = trimmed(given.text.substr(colon + 1));
  CARREL_TRY(check_header(given, credential.header));
  CARREL_TRY(check_value(given, credential));
  return credential;
}

std::string credential_text(const Credential& credential) {
  return concat({rule_text(credential.rule), "=", credential.header, ": ", credential.value});
}

std::vector<std::string> secrets_of(const Credential& credential) {
  std::vector<std::string> names;
  (void)each_part(
      credential.value, [](std::string_view) {},
      [&](std::string_view name) { names.emplace_back(name); });
  return names;
}

Result<std::string> fill_in(const Credential& credential, const SecretReader& secret) {
  std::string filled;
  Status status;
  (void)each_part(
      credential.value, [&](std::string_view text) { filled += text; },
      [&](std::string_view name) {
        auto value = secret(std::string(name));
        if (value.ok()) {
          filled += value.value();
        } else if (status.ok()) {
          status = value.error();
        }
      });
  CARREL_TRY(status);
  return filled;
}

bool is_for(const Credential& credential, const Host& host, std::uint16_t port) {
  return has_port(credential.rule, port) && means(credential.rule, host);
}

bool applies(const Credential& credential, const Flow& flow) {
  const auto* request = std::get_if<HttpRequest>(&flow.evidence);
  return request != nullptr && request->over == HttpRequest::Over::kTls &&
         is_for(credential, flow.host, flow.port) &&
         allowance_applies(credential.rule, flow).kind == RuleAnswer::Kind::kApplies;
}

Status check_credentials(const NetworkPolicy& policy) {
  for (const Credential& credential : policy.credentials) {
    const Verdict verdict = may_resolve(policy, std::get<Host>(credential.rule.target));
    if (verdict.denied()) {
      const std::string text = credential_text(credential);
      return bad_value({"credential", text}, verdict.reason,
                       "--network has to allow the server as well");
    }
  }
  return {};
}

}  // namespace carrel::policy
