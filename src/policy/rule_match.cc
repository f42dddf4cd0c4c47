#include "policy/rule_match.h"

#include <algorithm>

#include "policy/request_path.h"

namespace carrel::policy {
namespace {

using Kind = NetworkRule::Kind;
using Answer = RuleAnswer::Kind;

bool is_of_kind(const HttpRequest& request, Kind kind) {
  return (request.over == HttpRequest::Over::kTls) == (kind == Kind::kHttps);
}

bool has_method(const NetworkRule& rule, const std::string& method) {
  return rule.methods.empty() ||
         std::find(rule.methods.begin(), rule.methods.end(), method) != rule.methods.end();
}

// A name is asked for by that name; who dials an address has no other name in mind.
bool names_agree(const Host& host, const std::optional<Host>& named) {
  return host.is_name() ? named == host : !named.has_value() || named == host;
}

RuleAnswer does_not(std::string reason, std::string hint = {}) {
  return {Answer::kDoesNotApply, std::move(reason), std::move(hint)};
}

RuleAnswer hello_answer(const NetworkRule& rule, const Flow& flow, const TlsHello& hello) {
  if (rule.kind == Kind::kHttp) {
    return does_not("the client speaks TLS, and the rule is for HTTP without it",
                    "allow it without 'http:' to have TLS");
  }
  if (!names_agree(flow.host, hello.name)) {
    return does_not(hello.name.has_value()
                        ? concat({"the client asks for ", flow.host.text(),
                                  " and names another server in TLS: ", hello.name->text()})
                        : std::string("the client names no server in TLS (SNI)"));
  }
  return {rule.reads_requests() ? Answer::kNeedsRequests : Answer::kApplies, {}, {}};
}

RuleAnswer request_answer(const NetworkRule& rule, const Flow& flow, const HttpRequest& request) {
  if (!is_of_kind(request, rule.kind)) {
    return rule.kind == Kind::kHttps ? does_not("the client speaks HTTP without TLS",
                                                "use https, or allow it with 'http:' in front")
                                     : does_not("the rule is for HTTP without TLS");
  }
  if (request.host != flow.host || request.port != flow.port) {
    return does_not(concat({"the connection is to ", endpoint_text(flow.host, flow.port),
                            ", the request is for ", endpoint_text(request.host, request.port)}));
  }
  if (!has_method(rule, request.method)) {
    return does_not(concat({"the rule does not have the method ", quote(request.method)}));
  }
  if (!rule.path.empty() && !is_plain_path(request.path)) {
    return does_not(concat({"servers read the path ", quote(request.path), " in different ways"}),
                    "send it without '//', '/../', ';' and needless %XX");
  }
  if (!rule.path.empty() && !path_matches(rule.path, request.path)) {
    return does_not(concat({"the rule does not have the path ", quote(request.path)}));
  }
  return {Answer::kApplies, {}, {}};
}

}  // namespace

bool has_port(const NetworkRule& rule, std::uint16_t port) {
  return std::any_of(rule.ports.begin(), rule.ports.end(), [&](const PortRange& range) {
    return port >= range.first && port <= range.last;
  });
}

bool is_below(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() + 1 && name.ends_with(suffix) &&
         name[name.size() - suffix.size() - 1] == '.';
}

bool lists(const NetworkRule& rule, const IpAddress& address) {
  const auto* prefix = std::get_if<Prefix>(&rule.target);
  if (prefix == nullptr || !prefix->contains(address)) {
    return false;
  }
  switch (classify(address)) {
    case AddressClass::kThisNetwork:
      return false;  // dialled, it is the host itself
    case AddressClass::kLoopback:
    case AddressClass::kMetadata:
      return prefix->is_one_address();
    default:
      return true;
  }
}

bool means(const NetworkRule& rule, const Host& host) {
  if (const IpAddress* address = host.address(); address != nullptr) {
    if (rule.action == NetworkRule::Action::kAllow) {
      return lists(rule, *address);
    }
    const auto* prefix = std::get_if<Prefix>(&rule.target);
    const std::optional<IpAddress> inner = embedded_v4(*address);
    return prefix != nullptr &&
           (prefix->contains(*address) || (inner.has_value() && prefix->contains(*inner)));
  }
  if (const auto* suffix = std::get_if<NameSuffix>(&rule.target)) {
    return is_below(host.text(), suffix->suffix);
  }
  const auto* name = std::get_if<Host>(&rule.target);
  return name != nullptr && *name == host;
}

RuleAnswer allowance_applies(const NetworkRule& rule, const Flow& flow) {
  if (rule.kind == Kind::kTcp) {
    return {Answer::kApplies, {}, {}};
  }
  if (std::holds_alternative<std::monostate>(flow.evidence)) {
    return {Answer::kNeedsEvidence, {}, {}};
  }
  if (const auto* hello = std::get_if<TlsHello>(&flow.evidence)) {
    return hello_answer(rule, flow, *hello);
  }
  if (const auto* request = std::get_if<HttpRequest>(&flow.evidence)) {
    return request_answer(rule, flow, *request);
  }
  return does_not(rule.kind == Kind::kHttps ? "the client does not speak TLS"
                                            : "the client does not speak HTTP",
                  "'tcp:HOST:PORT' allows any bytes");
}

// CRITICAL: where a denial cannot see what it would deny, it denies or asks to see.
RuleAnswer denial_applies(const NetworkRule& rule, const Flow& flow) {
  if (rule.kind == Kind::kTcp) {
    return {Answer::kApplies, {}, {}};
  }
  if (std::holds_alternative<std::monostate>(flow.evidence)) {
    return {Answer::kNeedsEvidence, {}, {}};
  }
  if (std::holds_alternative<TlsHello>(flow.evidence)) {
    if (rule.kind == Kind::kHttp) {
      return {};
    }
    return {rule.reads_requests() ? Answer::kNeedsRequests : Answer::kApplies, {}, {}};
  }
  if (const auto* request = std::get_if<HttpRequest>(&flow.evidence)) {
    const bool same_path = rule.path.empty() || !is_plain_path(request->path) ||
                           path_matches(rule.path, request->path);
    const bool applies =
        is_of_kind(*request, rule.kind) && has_method(rule, request->method) && same_path;
    return {applies ? Answer::kApplies : Answer::kDoesNotApply, {}, {}};
  }
  return {Answer::kApplies, {}, {}};
}

bool kind_fits(const NetworkRule& rule, const Evidence& evidence) {
  if (rule.kind == Kind::kTcp) {
    return true;
  }
  if (const auto* request = std::get_if<HttpRequest>(&evidence)) {
    return is_of_kind(*request, rule.kind) && has_method(rule, request->method) &&
           (rule.path.empty() ||
            (is_plain_path(request->path) && path_matches(rule.path, request->path)));
  }
  const auto* hello = std::get_if<TlsHello>(&evidence);
  return rule.kind == Kind::kHttps && hello != nullptr &&
         (!rule.reads_requests() || hello->end == TlsHello::End::kHere);
}

}  // namespace carrel::policy
