#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "egress/client.h"
#include "egress/decision_log.h"
#include "egress/server.h"
#include "egress/trust.h"
#include "policy/decide.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::cli {

namespace {

using Words = std::vector<std::string_view>;
using nlohmann::ordered_json;

constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

// The id of a sandbox that lives, or of one that is only in the log.
std::string id_of(const storage::Home& home, std::string_view named) {
  auto record = storage::find_box(home, std::string(named));
  return record.ok() ? record->id : std::string(named);
}

Result<egress::Registration> registration_of(const storage::Home& home, std::string_view named) {
  CARREL_ASSIGN(const storage::BoxRecord record, storage::find_box(home, std::string(named)));
  auto registration = egress::read_registration(home, record.id);
  if (!registration.ok() && registration.error().code == Code::kNotFound) {
    registration.error().hint =
        "it was made without one; 'create --network allow=' makes one that can be opened later";
  }
  return registration;
}

// What a URL, or HOST:PORT, would be to the egress process.
struct Asked {
  policy::Flow flow;
  policy::HttpRequest request;  // if there is one that can be read
};

Result<Asked> asked_by(std::string_view text) {
  const Error wrong{Code::kInvalid, 0, "'" + printable(text) + "' is neither a URL nor HOST:PORT",
                    "such as https://example.org/path or tcp://db.example.org:5432"};
  std::string_view rest = text;
  std::string_view scheme = "tcp";
  if (const std::size_t at = text.find("://"); at != std::string_view::npos) {
    scheme = text.substr(0, at);
    rest = text.substr(at + 3);
  }
  const std::size_t slash = rest.find('/');
  std::string path = slash == std::string_view::npos ? "/" : std::string(rest.substr(slash));
  path = path.substr(0, path.find('?'));
  std::string_view place = rest.substr(0, slash);
  policy::Flow flow;
  flow.port = scheme == "https" ? kHttpsPort : scheme == "http" ? kHttpPort : 0;
  const std::size_t bracket = place.starts_with('[') ? place.find(']') : 0;
  const std::size_t colon = bracket == std::string_view::npos ? bracket : place.find(':', bracket);
  if (colon != std::string_view::npos) {
    const std::string_view port = place.substr(colon + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), flow.port);
    if (read.ec != std::errc() || read.ptr != port.data() + port.size()) {
      return wrong;
    }
    place = place.substr(0, colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) {
    place = place.substr(1, place.size() - 2);
  }
  if (flow.port == 0 || place.empty()) {
    return wrong;
  }
  CARREL_ASSIGN(flow.host, policy::canonical_host(place));
  policy::HttpRequest request;
  request.method = "GET";
  request.host = flow.host;
  request.port = flow.port;
  request.path = path;
  if (scheme == "https") {
    request.over = policy::HttpRequest::Over::kTls;
    policy::TlsHello hello;
    if (flow.host.is_name()) {
      hello.name = flow.host;
    }
    flow.evidence = hello;
  } else if (scheme == "http") {
    flow.evidence = request;
  } else {
    flow.evidence = policy::OpaqueBytes{};
  }
  return Asked{std::move(flow), std::move(request)};
}

int explain(const Context& context, const storage::Home& home, const Words& words) {
  auto registration = registration_of(home, words[0]);
  if (!registration.ok()) {
    return fail(context, registration.error());
  }
  auto asked = asked_by(words[1]);
  if (!asked.ok()) {
    return fail(context, asked.error());
  }
  policy::Flow& flow = asked->flow;
  policy::Verdict verdict = decide(registration->policy, flow);
  if (verdict.outcome == policy::Verdict::Outcome::kNeedsRequests) {
    flow.evidence = asked->request;
    verdict = decide(registration->policy, flow);
  }
  // What a name leads to is known only when it is dialled.
  if (!verdict.denied() && flow.host.address() != nullptr) {
    verdict = may_dial(registration->policy, flow, *flow.host.address(), {});
  }
  const std::string target = policy::endpoint_text(flow.host, flow.port);
  if (context.json()) {
    const ordered_json object = {{"allowed", !verdict.denied()},
                                 {"target", target},
                                 {"rule", verdict.rule},
                                 {"reason", verdict.reason},
                                 {"hint", verdict.hint}};
    print(object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else {
    std::vector<std::vector<std::string>> rows = {
        {"verdict", verdict.denied() ? "denied" : "allowed"},
        {"target", target},
        {"rule", verdict.rule.empty() ? "-" : verdict.rule},
        {"reason", verdict.reason}};
    if (!verdict.hint.empty()) {
      rows.push_back({"hint", verdict.hint});
    }
    print(table(rows));
  }
  return verdict.denied() ? kCarrelFailed : 0;
}

int set(const Context& context, const storage::Home& home, const Words& words) {
  auto registration = registration_of(home, words[0]);
  if (!registration.ok()) {
    return fail(context, registration.error());
  }
  auto policy = policy::parse_network({"POLICY", words[1]});
  if (!policy.ok()) {
    return fail(context, policy.error());
  }
  policy->budgets = registration->policy.budgets;
  policy->credentials = registration->policy.credentials;
  if (policy->ends_tls() && !egress::has_trust(home, registration->id)) {
    return fail(context, Error{Code::kConflict, 0,
                               "sandbox " + registration->id +
                                   " was made without certificates of its own, which rules for "
                                   "https with methods or paths need",
                               "make it with such a rule, or with a credential"});
  }
  if (Status changed = egress::change(home, registration->id, policy.value()); !changed.ok()) {
    return fail(context, changed.error());
  }
  if (context.json()) {
    print("{\"id\":" + json_string(registration->id) +
          ",\"network\":" + json_string(policy::network_text(policy.value())) + "}\n");
  }
  return 0;
}

// null: without an end.
ordered_json budget_json(std::uint64_t bytes) {
  return bytes == policy::NetworkBudgets::kUnlimited ? ordered_json() : ordered_json(bytes);
}

std::string of_budget(std::uint64_t most) {
  return most == policy::NetworkBudgets::kUnlimited ? "" : " of " + std::to_string(most);
}

int usage(const Context& context, const storage::Home& home, const Words& words) {
  auto registration = registration_of(home, words[0]);
  if (!registration.ok()) {
    return fail(context, registration.error());
  }
  auto used = egress::usage(home, registration->id);
  if (!used.ok()) {
    return fail(context, used.error());
  }
  const std::string policy = policy::network_text(registration->policy);
  const policy::NetworkBudgets& budgets = registration->policy.budgets;
  if (context.json()) {
    const ordered_json limits = {{"bytes_out", budget_json(budgets.bytes_out)},
                                 {"bytes_in", budget_json(budgets.bytes_in)},
                                 {"connections", budgets.connections},
                                 {"lookups_per_minute", budgets.lookups_per_minute}};
    const ordered_json object = {{"network", policy},          {"bytes_out", used->bytes_out},
                                 {"bytes_in", used->bytes_in}, {"connections", used->connections},
                                 {"live", used->live},         {"denied", used->denied},
                                 {"budgets", limits}};
    print(object.dump() + "\n");
  } else {
    print(table({{"network", policy},
                 {"bytes out", std::to_string(used->bytes_out) + of_budget(budgets.bytes_out)},
                 {"bytes in", std::to_string(used->bytes_in) + of_budget(budgets.bytes_in)},
                 {"connections", std::to_string(used->connections)},
                 {"open now", std::to_string(used->live) + of_budget(budgets.connections)},
                 {"lookups", "at most " + std::to_string(budgets.lookups_per_minute) + " a minute"},
                 {"denied", std::to_string(used->denied)}}));
  }
  return 0;
}

// A line of the log for a person.
std::string in_words(const ordered_json& line) {
  const auto milliseconds = line.value("time_ms", std::int64_t{0});
  const std::time_t seconds = milliseconds / 1000;
  std::tm moment{};
  ::localtime_r(&seconds, &moment);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%H:%M:%S", &moment);
  std::string text = time.data();
  text += "  " + line.value("event", "") + " " + line.value("verdict", "") + "  " +
          line.value("host", "");
  if (const int port = line.value("port", 0); port != 0) {
    text += ":" + std::to_string(port);
  }
  for (const char* key : {"address", "detail"}) {
    if (line.contains(key)) {
      text += " (" + line.value(key, "") + ")";
    }
  }
  if (line.contains("bytes_out")) {
    text += "  " + std::to_string(line.value("bytes_out", std::uint64_t{0})) + " bytes out, " +
            std::to_string(line.value("bytes_in", std::uint64_t{0})) + " in, " +
            std::to_string(line.value("duration_ms", std::uint64_t{0})) + " ms";
  }
  const std::string why =
      line.value("rule", "").empty() ? line.value("reason", "") : "by " + line.value("rule", "");
  if (!why.empty()) {
    text += "  " + why;
  }
  return printable(text) + "\n";
}

// The lines of one sandbox in a growing file.
class LogReader {
 public:
  LogReader(const Context& context, std::string id) : context_(&context), id_(std::move(id)) {}

  // Reads on from where it stopped; false when there was nothing new.
  bool read(int fd) {
    std::array<char, 16384> buffer;
    const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), offset_);
    if (n <= 0) {
      return false;
    }
    offset_ += n;
    rest_.append(buffer.data(), static_cast<std::size_t>(n));
    for (std::size_t end; (end = rest_.find('\n')) != std::string::npos;) {
      show(rest_.substr(0, end));
      rest_.erase(0, end + 1);
    }
    return true;
  }
  void begin_file() {
    offset_ = 0;
    rest_.clear();
  }

 private:
  void show(const std::string& text) {
    const auto line = ordered_json::parse(text, nullptr, false);
    if (line.is_object() && line.value("sandbox", "") == id_) {
      print(context_->json() ? text + "\n" : in_words(line));
    }
  }

  const Context* context_;
  std::string id_;
  std::string rest_;
  off_t offset_ = 0;
};

bool is_still(int directory, int fd) {
  struct stat held{};
  struct stat named{};
  return ::fstat(fd, &held) == 0 &&
         ::fstatat(directory, egress::DecisionLog::kFile, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_ino == named.st_ino;
}

int log(const Context& context, const storage::Home& home, const Words& words) {
  constexpr useconds_t kPauseUs = 100'000;
  LogReader reader(context, id_of(home, words[0]));
  const bool follow = context.arguments.has(OptionId::kFollow);
  auto directory =
      open_at(home.directory(), egress::DecisionLog::kDirectory, O_RDONLY | O_DIRECTORY);
  while (!directory.ok() && follow) {
    ::usleep(kPauseUs);
    directory = open_at(home.directory(), egress::DecisionLog::kDirectory, O_RDONLY | O_DIRECTORY);
  }
  if (!directory.ok()) {
    return 0;  // there was never a network
  }
  if (auto older = open_at(directory->get(), egress::DecisionLog::kOlder, O_RDONLY | O_NOFOLLOW);
      older.ok()) {
    while (reader.read(older->get())) {
    }
    reader.begin_file();
  }
  for (;;) {
    auto file = open_at(directory->get(), egress::DecisionLog::kFile, O_RDONLY | O_NOFOLLOW);
    while (file.ok()) {
      while (reader.read(file->get())) {
      }
      if (!follow || !is_still(directory->get(), file->get())) {
        break;
      }
      ::usleep(kPauseUs);
    }
    if (!follow) {
      return 0;
    }
    reader.begin_file();
    ::usleep(kPauseUs);
  }
}

}  // namespace

int net_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  const std::vector<std::string_view>& operands = context.arguments.operands;
  const std::string_view action = operands.front();
  const Words words(operands.begin() + 1, operands.end());
  if (action == "explain" && words.size() == 2) {
    return explain(context, home.value(), words);
  }
  if (action == "set" && words.size() == 2) {
    return set(context, home.value(), words);
  }
  if (action == "log" && words.size() == 1) {
    return log(context, home.value(), words);
  }
  if (action == "usage" && words.size() == 1) {
    return usage(context, home.value(), words);
  }
  return fail(context, Error{Code::kInvalid, 0,
                             "net takes explain ID URL, set ID POLICY, log ID or usage ID",
                             "see 'carrel help net'"});
}

int egress_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  return egress::run_egress(home.value(), 3);
}

}  // namespace carrel::cli
