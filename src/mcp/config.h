#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "mcp/eras.h"
#include "mcp/http_transport.h"
#include "mcp/server_process.h"

namespace carrel::mcp {

inline constexpr std::size_t kMostServers = 32;

// Where a server that is a program runs.
enum class Place { kSandbox, kHost };

struct StdioServer {
  ServerCommand command;
  Place place = Place::kSandbox;
};

struct HttpServer {
  http::Url url;
  std::vector<http::Header> headers;
};

// A server that somebody wants to be connected to.
struct ServerConfig {
  std::string id;
  std::variant<StdioServer, HttpServer> server;
  Protocol protocol = Protocol::kAuto;
  std::chrono::milliseconds timeout{60'000};  // of a call
};

// What a document says, in the shape that other programs have, too: JSON with an object
// `mcpServers`, or TOML with tables [mcp_servers.NAME]. Each server has `command` with `args`,
// `env` and `cwd`, or `url` with `headers`. A program runs in a sandbox, unless `sandbox = false`;
// `protocol` is auto, modern or legacy; `timeout` is that of a call; `disabled` leaves it out.
// `path` is for the errors only.
Result<std::vector<ServerConfig>> parse_servers(std::string_view text, std::string_view path);

// The object of servers alone.
Result<std::vector<ServerConfig>> read_servers(const Json& servers);

}  // namespace carrel::mcp
