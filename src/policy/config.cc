#include "policy/config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "policy/checked_toml.h"
#include "policy/given.h"
#include "policy/mount_request.h"
#include "policy/names.h"
#include "policy/suggest.h"
#include "policy/tasks.h"
#include "policy/toml_json.h"
#include "policy/value_types.h"

namespace carrel::policy {
namespace {

constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;

// Where in the file an error is.
struct Place {
  std::string_view path;
  std::uint64_t line = 0;
};

Error at_place(const Place& place, Error error) {
  const std::string line = place.line == 0 ? "" : concat({":", std::to_string(place.line)});
  error.message = concat({printable(place.path), line, ": ", error.message});
  return error;
}

Error config_error(const Place& place, std::string message) {
  return at_place(place, Error{Code::kInvalid, 0, std::move(message), {}});
}

std::string_view type_name(toml::node_type type) {
  // In the order of the enumeration.
  constexpr std::array<std::string_view, 10> kKeyNames = {
      "nothing",   "a table", "an array", "a string", "a whole number", "a number with a fraction",
      "a boolean", "a date",  "a time",   "a date"};
  return kKeyNames[static_cast<std::size_t>(type) % kKeyNames.size()];
}

// The one value of a node as text, if its type is one that the kind takes.
bool scalar_text(const toml::node& node, ValueKind kind, std::string& text) {
  const ScalarTypes types = scalar_types(kind);
  if (const auto* string = node.as_string(); string != nullptr && types.string) {
    text = string->get();
  } else if (const auto* whole = node.as_integer(); whole != nullptr && types.whole) {
    text = std::to_string(whole->get());
  } else if (const auto* real = node.as_floating_point(); real != nullptr && types.fraction) {
    text = number_text(real->get());
  } else if (const auto* flag = node.as_boolean(); flag != nullptr && types.flag) {
    text = flag->get() ? "true" : "false";
  } else {
    return false;
  }
  return true;
}

// Strings, whole numbers, and tables and arrays of them; anything else becomes null, which no
// setting takes.
nlohmann::ordered_json json_of(const toml::node& node) {
  if (const auto* string = node.as_string(); string != nullptr) {
    return string->get();
  }
  if (const auto* whole = node.as_integer(); whole != nullptr) {
    return whole->get();
  }
  nlohmann::ordered_json value;
  if (const toml::array* array = node.as_array(); array != nullptr) {
    value = nlohmann::ordered_json::array();
    for (const toml::node& element : *array) {
      value.push_back(json_of(element));
    }
  } else if (const toml::table* table = node.as_table(); table != nullptr) {
    value = nlohmann::ordered_json::object();
    for (const auto& [name, element] : *table) {
      value[std::string(name.str())] = json_of(element);
    }
  }
  return value;
}

Status apply(const std::vector<Assignment>& assignments, Spec& spec) {
  for (const Assignment& assignment : assignments) {
    CARREL_TRY(assignment.setting->set(spec, {assignment.setting->name, assignment.text}));
  }
  return {};
}

class Reader {
 public:
  explicit Reader(std::string_view path) : path_(path) {}

  Result<Config> read(const toml::table& document) {
    Config config;
    lists_paths_ = &config.lists_paths;
    CARREL_TRY(read_table(document, config.common, &config));
    if (const toml::node* sandbox = document.get("sandbox"); sandbox != nullptr) {
      CARREL_TRY(read_table(*sandbox->as_table(), config.common, nullptr));
    }
    for (auto [name, target] :
         {std::pair{"run", &config.run}, std::pair{"create", &config.create}}) {
      if (const toml::node* section = document.get(name); section != nullptr) {
        given_.clear();
        CARREL_TRY(read_table(*section->as_table(), *target, nullptr));
      }
    }
    return config;
  }

  Result<TaskFile> read_tasks(const toml::table& document) {
    Config config;
    lists_paths_ = &config.lists_paths;
    TaskFile file;
    const toml::table* tasks = nullptr;
    for (const auto& [key, node] : document) {
      if (key.str() == "tasks" && node.is_table()) {
        tasks = node.as_table();
      } else if (key.str() == "at_once" && node.is_integer() && node.as_integer()->get() >= 1 &&
                 node.as_integer()->get() <= static_cast<std::int64_t>(kMostTasks)) {
        file.at_once = static_cast<std::size_t>(node.as_integer()->get());
      } else if (key.str() == "tasks" || key.str() == "at_once") {
        return config_error(
            place(key.source()),
            concat({quote(key.str()), " must be ",
                    key.str() == "tasks" ? "a table of tables" : "a whole number from 1 to 256"}));
      } else {
        CARREL_TRY(read_key(key, node, config.common, nullptr));
      }
    }
    if (tasks == nullptr || tasks->empty() || tasks->size() > kMostTasks) {
      return config_error({path_, 0}, "there must be 1 to 256 tasks, as [tasks.NAME]");
    }
    for (const auto& [name, node] : *tasks) {
      if (!node.is_table()) {
        return config_error(place(name.source()), concat({quote(name.str()), " is not a table"}));
      }
      if (Status good = check_name({"tasks", name.str()}); !good.ok()) {
        return at_place(place(name.source()), std::move(good.error()));
      }
      CARREL_ASSIGN(Task task, read_task(*node.as_table(), config));
      task.name = name.str();
      file.tasks.push_back(std::move(task));
    }
    return file;
  }

 private:
  Result<Task> read_task(const toml::table& table, Config& config) {
    Task task;
    std::vector<Assignment> own;
    given_.clear();
    for (const auto& [key, node] : table) {
      const bool text = key.str() == "command" || key.str() == "stdin";
      if (!text && key.str() != "argv") {
        CARREL_TRY(read_key(key, node, own, nullptr));
        continue;
      }
      const nlohmann::ordered_json value = json_of(node);
      const bool words = value.is_array() && !value.empty() &&
                         std::all_of(value.begin(), value.end(),
                                     [](const auto& word) { return word.is_string(); });
      if (text ? !value.is_string() : !words) {
        return config_error(
            place(node.source()),
            concat({quote(key.str()), " must be ", text ? "a string" : "an array of strings"}));
      }
      if (key.str() == "stdin") {
        task.input = value.get<std::string>();
        continue;
      }
      if (!task.arguments.empty()) {
        return config_error(place(key.source()), "a task has either command or argv");
      }
      task.arguments = text ? std::vector<std::string>{"bash", "-c", value.get<std::string>()}
                            : value.get<std::vector<std::string>>();
    }
    if (task.arguments.empty() || task.arguments.front().empty()) {
      return config_error(place(table.source()), "a task needs a command or argv");
    }
    task.spec = default_spec(Operation::kRun);
    if (config.lists_paths) {
      task.spec.mount_grants.by = MountGrants::By::kLists;
    }
    for (const auto* assignments : {&config.common, &own}) {
      if (Status good = apply(*assignments, task.spec); !good.ok()) {
        return at_place(place(table.source()), std::move(good.error()));
      }
    }
    return task;
  }

  [[nodiscard]] Place place(const toml::source_region& source) const {
    return {path_, source.begin.line};
  }

  static bool is_section(std::string_view key) {
    return key == "sandbox" || key == "run" || key == "create";
  }

  // `document` is set for the top of the file, where the sections are keys too.
  Status read_table(const toml::table& table, std::vector<Assignment>& target,
                    const Config* document) {
    for (const auto& [key, node] : table) {
      if (document != nullptr && is_section(key.str())) {
        if (!node.is_table()) {
          return config_error(
              place(key.source()),
              concat({quote(key.str()), " must be a table, not ", type_name(node.type())}));
        }
        continue;
      }
      CARREL_TRY(read_key(key, node, target, document));
    }
    return {};
  }

  Status read_key(const toml::key& key, const toml::node& node, std::vector<Assignment>& target,
                  const Config* document) {
    const Setting* setting = find_setting(key.str());
    if (setting == nullptr) {
      return unknown_key(key, document);
    }
    const auto known = std::find(given_.begin(), given_.end(), setting);
    if (known != given_.end() && !setting->repeats()) {
      return config_error(place(key.source()),
                          concat({quote(key.str()), " is given twice: it sets ",
                                  key_name(setting->name), " again"}));
    }
    CARREL_TRY(check_network_said_once(key, *setting));
    given_.push_back(setting);
    *lists_paths_ = *lists_paths_ || setting->name == "allowed-read-paths" ||
                    setting->name == "allowed-write-paths";
    std::string text;
    if (scalar_text(node, setting->kind, text)) {
      return assign(place(node.source()), *setting, key.str(), std::move(text), target);
    }
    if (const toml::array* array = node.as_array(); array != nullptr && setting->repeats()) {
      return read_array(key, *array, *setting, target);
    }
    if (const toml::array* rules = node.as_array();
        rules != nullptr && setting->kind == ValueKind::kNetwork) {
      return read_rules(key, *rules, *setting, target);
    }
    if (const toml::table* variables = node.as_table();
        variables != nullptr && setting->kind == ValueKind::kVariables) {
      return read_variables(key, *variables, *setting, target);
    }
    if (const toml::table* services = node.as_table();
        services != nullptr && setting->kind == ValueKind::kServices) {
      return read_services(key, *services, *setting, target);
    }
    return wrong_type(place(node.source()), key.str(), *setting, node.type());
  }

  // [services.NAME]: what it holds is read by the setting, as an object.
  Status read_services(const toml::key& key, const toml::table& services, const Setting& setting,
                       std::vector<Assignment>& target) {
    for (const auto& [name, node] : services) {
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        return wrong_type(place(node.source()), key.str(), setting, node.type());
      }
      nlohmann::ordered_json object = json_of(*table);
      if (object.contains("name")) {
        return config_error(place(node.source()),
                            concat({quote(name.str()), " has its name already"}));
      }
      object["name"] = std::string(name.str());
      CARREL_TRY(assign(place(node.source()), setting, key.str(),
                        object.dump(-1, ' ', false, kReplace), target));
    }
    return {};
  }

  Status read_array(const toml::key& key, const toml::array& array, const Setting& setting,
                    std::vector<Assignment>& target) {
    for (const toml::node& element : array) {
      if (const toml::table* mount = element.as_table();
          mount != nullptr && setting.kind == ValueKind::kMounts) {
        CARREL_TRY(read_mount(key, *mount, setting, target));
        continue;
      }
      const auto* string = element.as_string();
      if (string == nullptr) {
        return wrong_type(place(element.source()), key.str(), setting, element.type());
      }
      CARREL_TRY(assign(place(element.source()), setting, key.str(), string->get(), target));
    }
    return {};
  }

  // Two keys for one thing: which of them holds would depend on their order.
  [[nodiscard]] Status check_network_said_once(const toml::key& key, const Setting& setting) const {
    for (const auto& [one, other] :
         {std::pair{"network", "network-enabled"}, std::pair{"network-enabled", "network"}}) {
      if (setting.name == one &&
          std::find(given_.begin(), given_.end(), find_setting(other)) != given_.end()) {
        return config_error(
            place(key.source()),
            concat({quote(key.str()), " is given twice: ", key_name(other), " says it already"}));
      }
    }
    return {};
  }

  // The rules of a network that allows what they say. None of them: it allows nothing.
  Status read_rules(const toml::key& key, const toml::array& rules, const Setting& setting,
                    std::vector<Assignment>& target) {
    std::string text = "allow=";
    for (const toml::node& element : rules) {
      const auto* rule = element.as_string();
      if (rule == nullptr) {
        return wrong_type(place(element.source()), key.str(), setting, element.type());
      }
      // By itself first: a comma in it would make two of it.
      if (auto good = parse_rule_or_preset({key.str(), rule->get()}); !good.ok()) {
        return at_place(place(element.source()), std::move(good.error()));
      }
      text += concat({text.ends_with('=') ? "" : ",", rule->get()});
    }
    return assign(place(rules.source()), setting, key.str(), std::move(text), target);
  }

  // A table with source, target and perhaps readonly, which is true unless it is the boolean false.
  Status read_mount(const toml::key& key, const toml::table& mount, const Setting& setting,
                    std::vector<Assignment>& target) {
    for (const auto& [name, node] : mount) {
      const bool flag = name.str() == "readonly";
      if (!flag && name.str() != "source" && name.str() != "target") {
        return config_error(place(name.source()),
                            concat({"unknown key ", quote(name.str()), " in ", key.str(),
                                    "; it has source, target and readonly"}));
      }
      if (flag ? !node.is_boolean() : !node.is_string()) {
        return config_error(place(node.source()), concat({key.str(), ".", name.str(), " must be ",
                                                          flag ? "true or false" : "a string",
                                                          ", not ", type_name(node.type())}));
      }
    }
    for (const std::string_view name : {"source", "target"}) {
      if (!mount.contains(name)) {
        return config_error(place(mount.source()), concat({key.str(), " has no ", name}));
      }
    }
    // By itself first: a ':' in it would move the border between the two.
    const std::string inside = mount.get("target")->as_string()->get();
    if (Status good = check_mount_target({key.str(), inside}); !good.ok()) {
      return at_place(place(mount.source()), std::move(good.error()));
    }
    const bool writable = mount.contains("readonly") && !mount.get("readonly")->as_boolean()->get();
    return assign(
        place(mount.source()), setting, key.str(),
        concat({mount.get("source")->as_string()->get(), ":", inside, writable ? ":rw" : ":ro"}),
        target);
  }

  Status read_variables(const toml::key& key, const toml::table& table, const Setting& setting,
                        std::vector<Assignment>& target) {
    for (const auto& [name, node] : table) {
      const auto* string = node.as_string();
      if (string == nullptr) {
        return config_error(place(node.source()),
                            concat({key.str(), ".", printable(name.str(), 60),
                                    " must be a string, not ", type_name(node.type())}));
      }
      if (name.str().find('=') != std::string_view::npos) {
        return config_error(place(name.source()), concat({key.str(), ": ", quote(name.str()),
                                                          " is not a name for a variable"}));
      }
      CARREL_TRY(assign(place(node.source()), setting, key.str(),
                        concat({name.str(), "=", string->get()}), target));
    }
    return {};
  }

  Status assign(const Place& where, const Setting& setting, std::string_view key, std::string text,
                std::vector<Assignment>& target) {
    Spec scratch;
    if (Status status = setting.set(scratch, {key, text}); !status.ok()) {
      return at_place(where, std::move(status.error()));
    }
    target.push_back({&setting, std::move(text)});
    return {};
  }

  static Error wrong_type(const Place& where, std::string_view key, const Setting& setting,
                          toml::node_type type) {
    return config_error(
        where, concat({quote(key), " must be ", wanted_types(setting.kind, Notation::kToml),
                       ", not ", type_name(type)}));
  }

  [[nodiscard]] Error unknown_key(const toml::key& key, const Config* document) const {
    std::vector<std::string> keys;
    for (const Setting& setting : settings()) {
      if (setting.offered != Offered::kNotBuilt) {
        keys.push_back(key_name(setting.name));
        keys.insert(keys.end(), setting.aliases.begin(), setting.aliases.end());
      }
    }
    if (document != nullptr) {
      keys.insert(keys.end(), {"sandbox", "run", "create"});
    }
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const std::string question = did_you_mean(key.str(), views);
    return config_error(place(key.source()), concat({"unknown key ", quote(key.str()),
                                                     question.empty() ? "" : "; ", question}));
  }

  std::string_view path_;
  bool* lists_paths_ = nullptr;
  std::vector<const Setting*> given_;  // in the tables that add up to one
};

// What `read` makes of the document.
template <typename T, typename Read>
Result<T> parse_with(std::string_view text, std::string_view path, Read&& read) {
  CARREL_TRY(check_toml_text(text, path));
  try {
    const toml::table document = toml::parse(text);
    return read(document);
  } catch (const toml::parse_error& error) {
    return config_error({path, error.source().begin.line}, printable(error.description()));
  } catch (const BrokenExpectation&) {
    return config_error({path, 0}, "not TOML: a bracket or brace is out of place");
  }
}

}  // namespace

Result<Config> parse_config(std::string_view text, std::string_view path) {
  CARREL_ASSIGN(Config config, parse_with<Config>(text, path, [&](const toml::table& document) {
                  return Reader(path).read(document);
                }));
  // What is good by itself can still disagree, as two mounts at one place do.
  for (const Operation operation : {Operation::kRun, Operation::kCreate}) {
    if (auto spec = spec_from(config, operation); !spec.ok()) {
      return at_place({path, 0}, std::move(spec.error()));
    }
  }
  return config;
}

Result<TaskFile> parse_tasks(std::string_view text, std::string_view path) {
  return parse_with<TaskFile>(
      text, path, [&](const toml::table& document) { return Reader(path).read_tasks(document); });
}

using Strings = std::map<std::string, std::string>;
Result<Strings> parse_strings(std::string_view text, std::string_view path) {
  return parse_with<Strings>(text, path, [&](const toml::table& document) -> Result<Strings> {
    Strings strings;
    for (const auto& [key, node] : document) {
      const auto* value = node.as_string();
      if (value == nullptr) {
        return config_error(
            {path, key.source().begin.line},
            concat({quote(key.str()), " must be a string, not ", type_name(node.type())}));
      }
      strings.emplace(key.str(), value->get());
    }
    return strings;
  });
}

Result<Spec> spec_from(const Config& config, Operation operation) {
  Spec spec = default_spec(operation);
  if (config.lists_paths) {
    spec.mount_grants.by = MountGrants::By::kLists;
  }
  CARREL_TRY(apply(config.common, spec));
  CARREL_TRY(apply(operation == Operation::kCreate ? config.create : config.run, spec));
  return spec;
}

}  // namespace carrel::policy
