#include "mcp/config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "policy/given.h"
#include "policy/json_fields.h"
#include "policy/names.h"
#include "policy/strict_json.h"
#include "policy/toml_json.h"

namespace carrel::mcp {
namespace {

constexpr std::size_t kLargestDocument = 64U << 10;
constexpr std::size_t kLongestServerName = 64;
// What the client and the protocol say themselves.
constexpr std::array<std::string_view, 9> kOwnHeaders = {
    "host",           "content-length", "content-type",      "accept",    "accept-encoding",
    "mcp-session-id", "connection",     "transfer-encoding", "user-agent"};

Error bad(std::string message) { return Error{Code::kInvalid, 0, std::move(message), {}}; }

Result<Protocol> read_protocol(policy::Fields& fields) {
  const std::string word = fields.text("protocol").value_or("auto");
  if (word == "auto") {
    return Protocol::kAuto;
  }
  if (word == "modern") {
    return Protocol::kModern;
  }
  if (word == "legacy") {
    return Protocol::kLegacy;
  }
  return bad("'protocol' must be auto, modern or legacy");
}

Result<std::vector<http::Header>> read_headers(const Json* object) {
  std::vector<http::Header> headers;
  if (object == nullptr) {
    return headers;
  }
  if (!object->is_object()) {
    return bad("'headers' must be an object of strings");
  }
  for (const auto& [name, value] : object->items()) {
    if (!http::is_token(name) || !value.is_string() ||
        !http::is_value(value.get_ref<const std::string&>())) {
      return bad("the header " + policy::quote(name) + " is not one line of text");
    }
    const std::string header = lower(name);
    if (std::find(kOwnHeaders.begin(), kOwnHeaders.end(), header) != kOwnHeaders.end() ||
        header.starts_with("mcp-")) {
      return bad("the header " + policy::quote(name) + " is not yours to set");
    }
    headers.push_back({name, value.get<std::string>()});
  }
  return headers;
}

Result<StdioServer> read_stdio(policy::Fields& fields, std::string command) {
  StdioServer server;
  server.command.words = {std::move(command)};
  for (std::string& word : fields.texts("args").value_or(std::vector<std::string>())) {
    server.command.words.push_back(std::move(word));
  }
  for (const std::string& word : server.command.words) {
    if (word.find('\0') != std::string::npos) {
      return bad("a NUL byte in 'args'");
    }
  }
  if (server.command.words.front().empty()) {
    return bad("'command' is empty");
  }
  server.command.environment = fields.variables("env");
  if (const auto directory = fields.text("cwd"); directory.has_value()) {
    CARREL_ASSIGN(server.command.directory, policy::normalize_path({"cwd", *directory}));
  }
  server.place = fields.flag("sandbox").value_or(true) ? Place::kSandbox : Place::kHost;
  return server;
}

Result<HttpServer> read_http(policy::Fields& fields, const std::string& url) {
  HttpServer server;
  CARREL_ASSIGN(server.url, http::parse_url(url));
  CARREL_ASSIGN(server.headers, read_headers(fields.any("headers")));
  return server;
}

// `type` is what others want to know, and says nothing that the other members do not.
Status check_type(policy::Fields& fields, std::string_view fitting) {
  const std::string type = fields.text("type").value_or(std::string(fitting));
  if (type == "sse") {
    return Error{Code::kUnsupported, 0, "the transport 'sse' of 2024 is not spoken here",
                 "most servers have streamable HTTP at another address, such as /mcp"};
  }
  const bool same = type == fitting || (fitting == "http" && type == "streamable-http") ||
                    (fitting == "http" && type == "streamableHttp");
  return same ? Status() : Status(bad("'type' does not fit to the other settings"));
}

Result<std::optional<ServerConfig>> read_server(const std::string& id, const Json& object) {
  policy::Fields fields(object, "it");
  ServerConfig config;
  config.id = id;
  const auto command = fields.text("command");
  const auto url = fields.text("url");
  if (command.has_value() && url.has_value()) {
    return bad("it has both 'command' and 'url'");
  }
  if (command.has_value()) {
    CARREL_TRY(check_type(fields, "stdio"));
    CARREL_ASSIGN(config.server, read_stdio(fields, *command));
  } else if (url.has_value()) {
    CARREL_TRY(check_type(fields, "http"));
    CARREL_ASSIGN(config.server, read_http(fields, *url));
  }
  CARREL_ASSIGN(config.protocol, read_protocol(fields));
  config.timeout = fields.duration("timeout").value_or(config.timeout);
  const bool disabled = fields.flag("disabled").value_or(false);
  CARREL_TRY(fields.finish());
  if (!command.has_value() && !url.has_value()) {
    return bad("it has neither 'command' nor 'url'");
  }
  return disabled ? std::optional<ServerConfig>() : std::move(config);
}

}  // namespace

Result<std::vector<ServerConfig>> read_servers(const Json& servers) {
  if (!servers.is_object()) {
    return bad("MCP servers are an object, by their names");
  }
  if (servers.size() > kMostServers) {
    return Error{Code::kResource,
                 0,
                 "there are more than " + std::to_string(kMostServers) + " MCP servers",
                 {}};
  }
  std::vector<ServerConfig> configs;
  for (const auto& [id, object] : servers.items()) {
    if (id.empty() || id.size() > kLongestServerName ||
        policy::shape_of(id) != policy::TextShape::kPlain) {
      return bad("the name of an MCP server is a text of 1 to 64 bytes, and " + policy::quote(id) +
                 " is not");
    }
    auto config = read_server(id, object);
    if (!config.ok()) {
      config.error().message = "MCP server " + policy::quote(id) + ": " + config.error().message;
      return std::move(config.error());
    }
    if (config.value().has_value()) {
      configs.push_back(std::move(*config.value()));
    }
  }
  return configs;
}

Result<std::vector<ServerConfig>> parse_servers(std::string_view text, std::string_view path) {
  const auto placed = [&](Error error) {
    error.message = policy::printable(path) + ": " + error.message;
    return error;
  };
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  if (text.size() > kLargestDocument) {
    return placed(Error{Code::kResource, 0, "the file is larger than 64k", {}});
  }
  auto document = is_json ? policy::parse_strict_json(text, {.what = "the file"})
                          : policy::parse_toml_json(text, path);
  if (!document.ok()) {
    return is_json ? placed(document.error()) : document.error();
  }
  policy::Fields fields(document.value(), "the file");
  const Json* servers = fields.any(is_json ? "mcpServers" : "mcp_servers");
  if (Status good = fields.finish(); !good.ok()) {
    return placed(good.error());
  }
  if (servers == nullptr) {
    return placed(bad(is_json ? "there is no 'mcpServers'" : "there is no [mcp_servers.NAME]"));
  }
  auto configs = read_servers(*servers);
  return configs.ok() ? std::move(configs) : placed(configs.error());
}

}  // namespace carrel::mcp
