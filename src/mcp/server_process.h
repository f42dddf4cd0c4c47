#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace carrel::mcp {

// A server that speaks MCP on its standard input and output, wherever it runs. It ends with this
// object: its input is closed first, and what does not end by itself then is killed.
class ServerProcess {
 public:
  ServerProcess() = default;
  virtual ~ServerProcess() = default;
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // This side of its input, a socket, and of its two outputs. None of them blocks.
  [[nodiscard]] virtual int input() const = 0;
  [[nodiscard]] virtual int output() const = 0;
  [[nodiscard]] virtual int errors() const = 0;
  // How it ended, such as "exit status 1", waiting that long for it; empty: it has not.
  virtual std::string wait_for_end(std::chrono::milliseconds patience) = 0;
};

using StartServer = std::function<Result<std::unique_ptr<ServerProcess>>()>;

// A program and its arguments, what is added to its environment, and the directory it starts in
// (empty: this process's own).
struct ServerCommand {
  std::vector<std::string> words;
  std::vector<std::string> environment;  // NAME=VALUE
  std::string directory;
};

// Starts a server as a process of this host, with this user's rights. Of this process's environment
// it gets the few variables that programs need to run, and no secret that may be in the others.
Result<std::unique_ptr<ServerProcess>> start_on_host(const ServerCommand& command);

}  // namespace carrel::mcp
