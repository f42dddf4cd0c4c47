#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "policy/network.h"
#include "policy/request_path.h"
#include "policy/suggest.h"

namespace carrel::policy {
namespace {

using Action = NetworkRule::Action;
using Kind = NetworkRule::Kind;

constexpr std::size_t kLongestRule = 1024;
constexpr std::array<std::string_view, 7> kMethods = {"GET",   "HEAD",   "POST",   "PUT",
                                                      "PATCH", "DELETE", "OPTIONS"};
constexpr std::array<std::string_view, 4> kPrefixes = {"https", "http", "tcp", "deny"};

struct KindName {
  std::string_view name;
  Kind kind;
};
constexpr std::array kKinds = {KindName{"https:", Kind::kHttps}, KindName{"http:", Kind::kHttp},
                               KindName{"tcp:", Kind::kTcp}};

std::string_view name_of(Kind kind) {
  const auto row = std::find_if(kKinds.begin(), kKinds.end(),
                                [&](const KindName& candidate) { return candidate.kind == kind; });
  return row->name;
}

std::vector<PortRange> default_ports(Action action, Kind kind) {
  if (action == Action::kDeny) {
    return {kEveryPort};
  }
  const std::uint16_t port = kind == Kind::kHttps ? 443 : 80;
  return {{port, port}};
}

bool has_dot(std::string_view name) { return name.find('.') != std::string_view::npos; }

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// One rule, read from left to right.
class RuleReader {
 public:
  explicit RuleReader(const Given& given) : given_(given), rest_(given.text) {}

  Result<NetworkRule> read() {
    CARREL_TRY(check_shape());
    read_action_and_kind();
    if (rest_.starts_with("//")) {
      return bad("a rule is not a URL", "write the host alone, such as 'example.org'");
    }
    if (kind_given_ && rule_.kind != Kind::kTcp) {
      CARREL_TRY(read_methods());
    }
    CARREL_TRY(read_target());
    CARREL_TRY(read_ports());
    CARREL_TRY(read_path());
    return std::move(rule_);
  }

 private:
  [[nodiscard]] Error bad(std::string_view reason, std::string hint = {}) const {
    return bad_value(given_, reason, std::move(hint));
  }

  bool take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) {
      return false;
    }
    rest_.remove_prefix(prefix.size());
    return true;
  }

  [[nodiscard]] Status check_shape() const {
    if (rest_.empty()) {
      return bad("a rule is empty");
    }
    if (rest_.size() > kLongestRule) {
      return bad("a rule is longer than 1024 characters");
    }
    if (rest_.find(',') != std::string_view::npos) {
      return bad("a comma ends a rule",
                 "join methods and ports by '+', as in 'http:GET+HEAD:example.org:80+8080'");
    }
    return {};
  }

  void read_action_and_kind() {
    if (take("deny:")) {
      rule_.action = Action::kDeny;
      rule_.kind = Kind::kTcp;
    }
    for (const KindName& row : kKinds) {
      if (take(row.name)) {
        rule_.kind = row.kind;
        kind_given_ = true;
        return;
      }
    }
  }

  Status read_methods() {
    const std::size_t colon = rest_.find(':');
    const std::string_view words = rest_.substr(0, colon);
    const bool methods =
        colon != std::string_view::npos && !words.empty() &&
        words.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ+-") == std::string_view::npos;
    if (!methods) {
      return {};
    }
    rest_.remove_prefix(colon + 1);
    std::string_view list = words;
    std::vector<std::string_view> wanted;
    for (;;) {
      const std::size_t plus = list.find('+');
      const std::string_view word = list.substr(0, plus);
      if (std::find(kMethods.begin(), kMethods.end(), word) == kMethods.end()) {
        std::string hint = did_you_mean(word, kMethods);
        return bad(concat({quote(word), " is not a method that a rule can have"}),
                   hint.empty() ? "one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" : hint);
      }
      wanted.push_back(word);
      if (plus == std::string_view::npos) {
        break;
      }
      list.remove_prefix(plus + 1);
    }
    for (const std::string_view method : kMethods) {
      if (std::find(wanted.begin(), wanted.end(), method) != wanted.end()) {
        rule_.methods.emplace_back(method);
      }
    }
    return {};
  }

  Status read_target() {
    if (rest_.find(':') != rest_.rfind(':') && !rest_.starts_with('[')) {
      // More than one colon: an IPv6 address without brackets, and nothing else.
      if (auto prefix = Prefix::parse(rest_); prefix.ok()) {
        rest_ = {};
        return set_prefix(prefix.value());
      }
    }
    if (take("[")) {
      const std::size_t end = rest_.find(']');
      if (end == std::string_view::npos) {
        return bad("']' is missing");
      }
      const std::string_view inside = rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      if (inside.find(':') == std::string_view::npos) {
        return bad("only an IPv6 address is written in brackets");
      }
      return set_prefix_text(concat({inside, take_prefix_length()}));
    }
    const std::size_t end = rest_.find_first_of(":/");
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(text.size());
    if (IpAddress::parse(text).has_value()) {
      return set_prefix_text(concat({text, take_prefix_length()}));
    }
    return text.find('*') == std::string_view::npos ? set_name(text) : set_suffix(text);
  }

  // "/8" before a port or the end; anything else that begins with '/' is a path.
  std::string_view take_prefix_length() {
    if (!rest_.starts_with('/')) {
      return {};
    }
    const std::string_view length = rest_.substr(0, rest_.find(':'));
    if (!is_digits(length.substr(1))) {
      return {};
    }
    rest_.remove_prefix(length.size());
    return length;
  }

  Status set_prefix_text(const std::string& text) {
    auto prefix = Prefix::parse(text);
    if (!prefix.ok()) {
      return Error{Code::kInvalid, 0, concat({given_.name, ": ", prefix.error().message}),
                   prefix.error().hint};
    }
    return set_prefix(prefix.value());
  }

  Status set_prefix(const Prefix& prefix) {
    const std::uint8_t widest = prefix.base.is_v4() ? kWidestPrefixV4 : kWidestPrefixV6;
    if (rule_.action == Action::kAllow && prefix.length < widest) {
      return bad(concat({"a rule allows the addresses of one network, /", std::to_string(widest),
                         " at most"}),
                 "'full' allows every public address");
    }
    rule_.target = prefix;
    return {};
  }

  Status set_name(std::string_view text) {
    auto host = canonical_host(text);
    if (!host.ok()) {
      return Error{Code::kInvalid, 0, concat({given_.name, ": ", host.error().message}),
                   host.error().hint};
    }
    if (!kind_given_ && !has_dot(host.value().text())) {
      return one_word(text);
    }
    rule_.target = std::move(host.value());
    return {};
  }

  // A bare word is far more often a mistake than a host.
  [[nodiscard]] Error one_word(std::string_view text) const {
    const std::string prefix = did_you_mean(text, kPrefixes);
    if (!rest_.empty() && !prefix.empty()) {
      return bad(concat({quote(text), " is not how a rule begins"}), prefix);
    }
    const std::vector<std::string_view> presets = preset_names();
    std::string hint = did_you_mean(text, presets);
    if (hint.empty()) {
      hint = "the presets are ";
      for (const std::string_view preset : presets) {
        hint += concat({preset, preset == presets.back() ? "" : ", "});
      }
      hint += concat({"; a host without a dot is written 'https:", printable(text, 60), "'"});
    }
    return bad("neither a preset nor a host with a dot", std::move(hint));
  }

  Status set_suffix(std::string_view text) {
    if (text == "*") {
      return bad("a rule names what it allows", "'full' allows every public address");
    }
    if (!text.starts_with("*.") || text.rfind('*') != 0) {
      return bad("'*' stands only in front, as in '*.example.org'");
    }
    auto host = canonical_host(text.substr(2));
    if (!host.ok()) {
      return Error{Code::kInvalid, 0, concat({given_.name, ": ", host.error().message}),
                   host.error().hint};
    }
    if (!host.value().is_name()) {
      return bad("an address has no names below it");
    }
    if (!has_dot(host.value().text())) {
      return bad("everything below a top-level name is too much for a rule",
                 "name the hosts, as in '*.example.org'");
    }
    rule_.target = NameSuffix{host.value().text()};
    return {};
  }

  Status read_ports() {
    if (!take(":")) {
      if (rule_.kind == Kind::kTcp && rule_.action == Action::kAllow) {
        return bad("a tcp rule has no port", "write it after a colon; ':*' is every port");
      }
      rule_.ports = default_ports(rule_.action, rule_.kind);
      return {};
    }
    std::string_view list = rest_.substr(0, rest_.find('/'));
    rest_.remove_prefix(list.size());
    for (;;) {
      const std::size_t plus = list.find('+');
      CARREL_ASSIGN(const PortRange range, read_range(list.substr(0, plus)));
      rule_.ports.push_back(range);
      if (plus == std::string_view::npos) {
        break;
      }
      list.remove_prefix(plus + 1);
    }
    merge_ports();
    return {};
  }

  [[nodiscard]] Result<PortRange> read_range(std::string_view text) const {
    if (text == "*") {
      return kEveryPort;
    }
    const std::size_t dash = text.find('-');
    const std::string_view first = text.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : text.substr(dash + 1);
    const auto low = read_port(first);
    const auto high = read_port(last);
    if (!low.has_value() || !high.has_value() || *low > *high) {
      return bad(concat({quote(text), " is not a port, a range of ports or '*'"}),
                 "an IPv6 address before a port is written in brackets");
    }
    return PortRange{*low, *high};
  }

  static std::optional<std::uint16_t> read_port(std::string_view text) {
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port, 10);
    if (!is_digits(text) || text.front() == '0' || error != std::errc() ||
        end != text.data() + text.size()) {
      return std::nullopt;
    }
    return port;
  }

  void merge_ports() {
    std::sort(rule_.ports.begin(), rule_.ports.end(),
              [](const PortRange& a, const PortRange& b) { return a.first < b.first; });
    std::vector<PortRange> merged;
    for (const PortRange& range : rule_.ports) {
      if (!merged.empty() && range.first <= unsigned{merged.back().last} + 1) {
        merged.back().last = std::max(merged.back().last, range.last);
      } else {
        merged.push_back(range);
      }
    }
    rule_.ports = std::move(merged);
  }

  Status read_path() {
    if (rest_.empty()) {
      return {};
    }
    if (rule_.kind == Kind::kTcp) {
      return bad("only 'https:' and 'http:' rules have a path");
    }
    if (!is_plain_path(rest_)) {
      return bad("its path is one that servers read in different ways",
                 "no '//', '/../', ';' or needless %XX; '*' stands for any text");
    }
    rule_.path = rest_ == "/*" ? "" : rest_;
    return {};
  }

  Given given_;
  std::string_view rest_;
  NetworkRule rule_;
  bool kind_given_ = false;
};

std::string ports_text(const std::vector<PortRange>& ports) {
  std::string text;
  for (const PortRange& range : ports) {
    text += text.empty() ? "" : "+";
    if (range == kEveryPort) {
      text += "*";
      continue;
    }
    text += std::to_string(range.first);
    if (range.last != range.first) {
      text += "-" + std::to_string(range.last);
    }
  }
  return text;
}

std::string target_text(const RuleTarget& target) {
  if (const auto* suffix = std::get_if<NameSuffix>(&target)) {
    return concat({"*.", suffix->suffix});
  }
  if (const auto* prefix = std::get_if<Prefix>(&target)) {
    if (prefix->base.is_v4()) {
      return prefix->text();
    }
    const std::string length = concat({"/", std::to_string(prefix->length)});
    return concat({"[", prefix->base.text(), "]", prefix->is_one_address() ? "" : length});
  }
  return std::get<Host>(target).text();
}

bool is_one_label(const RuleTarget& target) {
  const auto* host = std::get_if<Host>(&target);
  return host != nullptr && !has_dot(host->text());
}

}  // namespace

Result<NetworkRule> parse_rule(const Given& given) { return RuleReader(given).read(); }

std::string rule_text(const NetworkRule& rule) {
  const bool denies = rule.action == Action::kDeny;
  const Kind usual = denies ? Kind::kTcp : Kind::kHttps;
  std::string text = denies ? "deny:" : "";
  if (rule.kind != usual || !rule.methods.empty() || is_one_label(rule.target)) {
    text += name_of(rule.kind);
  }
  for (const std::string& method : rule.methods) {
    text += method;
    text += method == rule.methods.back() ? ":" : "+";
  }
  text += target_text(rule.target);
  const bool needs_port = rule.kind == Kind::kTcp && !denies;
  if (needs_port || rule.ports != default_ports(rule.action, rule.kind)) {
    text += ":" + ports_text(rule.ports);
  }
  return text + rule.path;
}

}  // namespace carrel::policy
