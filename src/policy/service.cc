#include "policy/service.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "policy/names.h"
#include "policy/size.h"

namespace carrel::policy {
namespace {

using Json = nlohmann::ordered_json;

Error wrong(const Given& given, std::string message) {
  return Error{Code::kInvalid, 0, std::string(given.name) + ": " + std::move(message),
               "NAME=COMMAND, NAME:PORT=COMMAND, or a table with command and ready"};
}

std::vector<std::string> shell_words(std::string command) {
  return {"sh", "-c", std::move(command)};
}

// A text for sh, or words.
Result<std::vector<std::string>> read_command(const Given& given, const std::string& name,
                                              const Json& value) {
  std::vector<std::string> words;
  if (value.is_string()) {
    words = shell_words(value.get<std::string>());
  } else if (value.is_array()) {
    for (const Json& word : value) {
      if (!word.is_string()) {
        return wrong(given, "the command of " + quote(name) + " is not of strings");
      }
      words.push_back(word.get<std::string>());
    }
  } else {
    return wrong(given, "the command of " + quote(name) + " must be a string or an array of them");
  }
  std::size_t size = 0;
  for (const std::string& word : words) {
    size += word.size() + 1;
    if (word.find('\0') != std::string::npos) {
      return wrong(given, "a NUL byte in the command of " + quote(name));
    }
  }
  if (words.empty() || words.front().empty() || words.back().empty()) {
    return wrong(given, "the command of " + quote(name) + " is empty");
  }
  if (size > kLongestService) {
    return wrong(given, "the command of " + quote(name) + " is longer than 32k");
  }
  return words;
}

Result<std::uint16_t> read_port(const Given& given, const Json& value) {
  if (!value.is_number_integer() || value < 1 || value > 65535) {
    return wrong(given, "the port is not a number from 1 to 65535");
  }
  return value.get<std::uint16_t>();
}

Status read_ready(const Given& given, const Json& ready, Service& service) {
  if (!ready.is_object() || ready.size() != 1 ||
      !(ready.contains("port") || ready.contains("command"))) {
    return wrong(given, "ready of " + quote(service.name) + " must have a port or a command");
  }
  if (ready.contains("port")) {
    CARREL_ASSIGN(service.ready_port, read_port(given, ready["port"]));
    return {};
  }
  CARREL_ASSIGN(service.ready_command, read_command(given, service.name, ready["command"]));
  return {};
}

Result<Service> read_object(const Given& given, const Json& object) {
  Service service;
  for (const auto& [key, value] : object.items()) {
    if (key != "name" && key != "command" && key != "ready") {
      return wrong(given, "unknown key " + quote(key) + "; it has name, command and ready");
    }
  }
  if (!object.contains("name") || !object["name"].is_string()) {
    return wrong(given, "a service has no name");
  }
  service.name = object["name"].get<std::string>();
  CARREL_TRY(check_name({given.name, service.name}));
  if (!object.contains("command")) {
    return wrong(given, quote(service.name) + " has no command");
  }
  CARREL_ASSIGN(service.arguments, read_command(given, service.name, object["command"]));
  if (object.contains("ready")) {
    CARREL_TRY(read_ready(given, object["ready"], service));
  }
  return service;
}

}  // namespace

Result<Service> parse_service(const Given& given) {
  if (given.text.starts_with('{')) {
    const Json object = Json::parse(given.text, nullptr, false);
    return object.is_object() ? read_object(given, object)
                              : Result<Service>(wrong(given, "not a JSON object"));
  }
  const std::size_t equals = given.text.find('=');
  if (equals == std::string_view::npos) {
    return wrong(given, quote(given.text) + " has no '='");
  }
  const std::string_view head = given.text.substr(0, equals);
  const std::size_t colon = head.find(':');
  Json object{{"name", head.substr(0, colon)}, {"command", given.text.substr(equals + 1)}};
  if (colon != std::string_view::npos) {
    CARREL_ASSIGN(const std::uint64_t port,
                  parse_count({given.name, head.substr(colon + 1)}, {.least = 1, .most = 65535}));
    object["ready"] = {{"port", port}};
  }
  return read_object(given, object);
}

std::string service_text(const Service& service) {
  std::string text = service.name;
  if (service.ready_port != 0) {
    text += ":" + std::to_string(service.ready_port);
  }
  text += "=";
  const bool shell =
      service.arguments.size() == 3 && service.arguments[0] == "sh" && service.arguments[1] == "-c";
  if (shell) {
    return text + service.arguments[2];
  }
  for (std::size_t i = 0; i < service.arguments.size(); ++i) {
    text += (i == 0 ? "" : " ") + service.arguments[i];
  }
  return text;
}

}  // namespace carrel::policy
