#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/environment.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"
#include "cli/table.h"
#include "policy/settings.h"
#include "storage/home.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kNames = {
    EnvironmentName{"CARREL_HOME", "the folder below which state is kept, an absolute path"},
    EnvironmentName{"CARREL_MODEL", "the model of `agent run`, PROVIDER:NAME"},
    EnvironmentName{"CARREL_VM_KERNEL", "the kernel of `--backend microvm`, a file"},
    EnvironmentName{"CARREL_VM_ACCELERATOR", "tcg: virtual machines are emulated"},
    EnvironmentName{"CARREL_VM_BOOT_SECONDS", "how long a virtual machine may take to start"},
    EnvironmentName{"CARREL_VM_SNAPSHOTS",
                    "on or off: start virtual machines from one that was saved"},
    EnvironmentName{"CARREL_API", "for the Python package: where the daemon is"},
    EnvironmentName{"CARREL_TOKEN", "for the Python package: the token for it"},
    EnvironmentName{"CARREL_BINARY", "for the Python package: the program that it starts"},
};

// The value of a variable that is a secret is nobody's to see.
bool is_secret(std::string_view name) { return name == "CARREL_TOKEN"; }

// What is in force, and where that comes from.
struct Fact {
  std::string name;
  std::string value;
  std::string from;
};

struct Variable {
  std::string name;
  std::string value;
  bool known = false;
};

std::vector<Variable> variables() {
  std::vector<Variable> found;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("CARREL_")) {
      continue;
    }
    const bool known = std::any_of(kNames.begin(), kNames.end(),
                                   [&](const EnvironmentName& one) { return one.name == name; });
    found.push_back({name,
                     is_secret(name) || !known
                         ? "..."
                         : std::string(text.substr(std::min(text.size(), name.size() + 1))),
                     known});
  }
  std::sort(found.begin(), found.end(),
            [](const Variable& a, const Variable& b) { return a.name < b.name; });
  return found;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value == '/';
}

std::string source_of_home() {
  if (const char* given = std::getenv("CARREL_HOME"); given != nullptr && *given != '\0') {
    return "CARREL_HOME";
  }
  return ::geteuid() == 0          ? "the default for root"
         : is_set("XDG_DATA_HOME") ? "XDG_DATA_HOME"
                                   : "HOME";
}

// A text as one word of a shell.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

std::string socket_of(const std::string& home) { return home + "/run/api.sock"; }

bool answers(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || path.size() >= sizeof address.sun_path) {
    return false;
  }
  path.copy(address.sun_path, path.size());
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

struct Configuration {
  std::string path;  // empty: there is none
  std::string from;
  Status read;
  std::vector<Fact> settings;  // of `run`, and those of `create` that are others
};

std::string absolute(std::string_view path) {
  if (path.starts_with('/')) {
    return std::string(path);
  }
  auto folder = current_folder();
  return (folder.ok() ? folder.value() + "/" : "") + std::string(path);
}

Configuration look_at_configuration(const Context& context) {
  Configuration found;
  const auto given = config_file(context.arguments);
  if (given.has_value()) {
    found.path = absolute(*given);
    found.from = "--config";
  } else if (::access("carrel.toml", F_OK) == 0) {
    found.path = absolute("carrel.toml");
    found.from = "the current folder; it can only narrow";
  }
  for (const auto& [operation, name] : {std::pair(policy::Operation::kRun, "run"),
                                        std::pair(policy::Operation::kCreate, "create")}) {
    auto spec = sandbox_spec(context.arguments, operation);
    if (!spec.ok()) {
      found.read = spec.error();
      return found;
    }
    const auto defaults = policy::dump_settings(policy::default_spec(operation));
    const auto values = policy::dump_settings(spec.value());
    for (std::size_t i = 0; i < values.size(); ++i) {
      found.settings.push_back({std::string(name) + "." + std::string(values[i].name),
                                values[i].value,
                                values[i].value == defaults[i].value ? "default" : found.path});
    }
  }
  return found;
}

void print_json(const std::vector<Fact>& places, bool listening, const Configuration& configuration,
                const std::vector<Variable>& set) {
  Json object;
  for (const Fact& place : places) {
    object[place.name] = {{"value", replace_invalid_utf8(place.value)}, {"from", place.from}};
  }
  object["socket"]["answers"] = listening;
  object["configuration"] = nullptr;
  if (!configuration.path.empty()) {
    object["configuration"] = {{"value", replace_invalid_utf8(configuration.path)},
                               {"from", configuration.from}};
  }
  object["settings"] = Json::object();
  for (const Fact& setting : configuration.settings) {
    object["settings"][setting.name] = {{"value", replace_invalid_utf8(setting.value)},
                                        {"from", replace_invalid_utf8(setting.from)}};
  }
  object["variables"] = Json::array();
  for (const Variable& variable : set) {
    object["variables"].push_back({{"name", replace_invalid_utf8(variable.name)},
                                   {"value", replace_invalid_utf8(variable.value)},
                                   {"known", variable.known}});
  }
  print(object.dump() + "\n");
}

void print_text(const std::vector<Fact>& places, const Configuration& configuration,
                const std::vector<Variable>& set) {
  std::vector<std::vector<std::string>> rows;
  for (const Fact& place : places) {
    rows.push_back({place.name, place.value, place.from});
  }
  rows.push_back({"configuration", configuration.path.empty() ? "-" : configuration.path,
                  configuration.path.empty() ? "no carrel.toml here" : configuration.from});
  for (const Fact& setting : configuration.settings) {
    if (setting.from != "default") {
      rows.push_back({setting.name, setting.value, setting.from});
    }
  }
  for (const Variable& variable : set) {
    rows.push_back({variable.name, variable.value,
                    variable.known ? "the environment" : "the environment; nothing reads it"});
  }
  print(table(rows));
}

}  // namespace

std::span<const EnvironmentName> environment_names() { return kNames; }

int env_command(const Context& context) {
  auto home = storage::home_path();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  const std::string socket = socket_of(home.value());
  if (context.arguments.has(OptionId::kForShell)) {
    print("export CARREL_HOME=" + shell_word(home.value()) + "\n");
    return 0;
  }
  const bool listening = answers(socket);
  const std::vector<Fact> places = {
      {"home", home.value(), source_of_home()},
      {"run", home.value() + "/run", "below home"},
      {"socket", socket, listening ? "a daemon answers" : "nobody answers; 'carrel serve' would"}};
  const Configuration configuration = look_at_configuration(context);
  const std::vector<Variable> set = variables();
  if (context.json() && configuration.read.ok()) {
    print_json(places, listening, configuration, set);
  } else if (!context.json()) {
    print_text(places, configuration, set);
  }
  return configuration.read.ok() ? 0 : fail(context, configuration.read.error());
}

}  // namespace carrel::cli
