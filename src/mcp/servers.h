#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "http/client.h"
#include "mcp/config.h"
#include "mcp/sandboxed_server.h"
#include "mcp/session.h"
#include "mcp/tools.h"

namespace carrel::mcp {

// A tool as a model sees it.
struct ExposedTool {
  std::string name;    // see names.h
  std::string server;  // its id
  Tool tool;

  // {"name", "description", "parameters"}: a function that a model can call.
  [[nodiscard]] Json function() const;
};

struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // none: the server's
  int cancel = -1;  // borrowed: the call is given up once it is readable
  std::function<void(const Progress&)> progress = {};
};

// The servers that an agent is connected to, and their tools. For several threads; the calls of one
// server wait for each other.
class Servers {
 public:
  struct Options {
    SandboxStarter sandboxes = {};  // none: a server that is to run in one is refused
    http::ClientOptions http = {};
    std::chrono::milliseconds connect_patience{30'000};  // for each, side by side
    int cancel = -1;                                     // borrowed: gives connecting up
  };

  explicit Servers(Options options) : options_(std::move(options)) {}

  // What became of one of them. One that cannot be reached has an error and no tools, and says
  // nothing about the others. Tools that are left out, because of what is wrong with them or
  // because another has the same name, have a sentence each.
  struct Report {
    std::string server;
    std::optional<Error> error;
    std::string version;  // of the protocol
    About about;
    std::size_t tools = 0;
    std::vector<std::string> notices;
  };
  // Connects to all of them at once; the reports are in their order. One that is connected already
  // is refused.
  std::vector<Report> connect(const std::vector<ServerConfig>& configs);

  // Ends the connection and removes the tools of that server and no other; an empty id: of all.
  Status disconnect(const std::string& server);

  // In the order in which they came.
  [[nodiscard]] std::vector<ExposedTool> tools() const;
  [[nodiscard]] std::vector<std::string> connected() const;

  // By the tool's exposed name. What the tool says of itself, that it failed included, is a value.
  Result<ToolResult> call(const std::string& name, const Json& arguments,
                          const CallOptions& options);

 private:
  struct Connection {
    std::timed_mutex mutex;  // for the session
    std::unique_ptr<Session> session;
    std::chrono::milliseconds timeout{};
  };
  struct Connecting {
    Report report;
    std::shared_ptr<Connection> connection;
    std::vector<Tool> tools;
  };

  Result<std::unique_ptr<Transport>> reach(const ServerConfig& config) const;
  Status open(const ServerConfig& config, Connecting& connecting) const;
  void add(Connecting& connecting);

  Options options_;
  mutable std::mutex mutex_;  // for what follows; never held while anybody waits
  std::map<std::string, std::shared_ptr<Connection>> connections_;
  std::vector<ExposedTool> tools_;
};

}  // namespace carrel::mcp
