#include "mcp/servers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "mcp/http_transport.h"
#include "mcp/names.h"
#include "mcp/stdio_transport.h"
#include "policy/given.h"

namespace carrel::mcp {
namespace {

// The most servers that are being connected to at once.
constexpr std::size_t kAtOnce = kMostServers;

Error of_server(const std::string& id, Error error) {
  error.message = "MCP server " + policy::quote(id) + ": " + error.message;
  return error;
}

}  // namespace

Json ExposedTool::function() const {
  return {{"name", name}, {"description", tool.description}, {"parameters", tool.input_schema}};
}

Result<std::unique_ptr<Transport>> Servers::reach(const ServerConfig& config) const {
  if (const auto* http = std::get_if<HttpServer>(&config.server)) {
    return std::unique_ptr<Transport>(
        std::make_unique<HttpTransport>(HttpPlace{http->url, http->headers, options_.http}));
  }
  const auto& stdio = std::get<StdioServer>(config.server);
  if (stdio.place == Place::kSandbox && !options_.sandboxes) {
    return Error{Code::kUnsupported, 0, "it is to run in a sandbox, and there is none for it",
                 "'sandbox = false' runs it on the host"};
  }
  CARREL_ASSIGN(std::unique_ptr<ServerProcess> process, stdio.place == Place::kSandbox
                                                            ? options_.sandboxes(stdio.command)
                                                            : start_on_host(stdio.command));
  return std::unique_ptr<Transport>(std::make_unique<StdioTransport>(std::move(process)));
}

Status Servers::open(const ServerConfig& config, Connecting& connecting) const {
  const Patience patience{http::Clock::now() + options_.connect_patience, options_.cancel};
  CARREL_ASSIGN(std::unique_ptr<Session> session,
                Session::open([this, config] { return reach(config); }, config.protocol, patience));
  connecting.report.version = session->version();
  connecting.report.about = session->about();
  if (session->about().has_tools) {
    CARREL_ASSIGN(ToolList list, list_tools(*session, patience));
    connecting.tools = std::move(list.tools);
    connecting.report.notices = std::move(list.notices);
  }
  connecting.connection = std::make_shared<Connection>();
  connecting.connection->session = std::move(session);
  connecting.connection->timeout = config.timeout;
  return {};
}

// The first of two tools with one name has it.
void Servers::add(Connecting& connecting) {
  const std::string& id = connecting.report.server;
  const std::lock_guard lock(mutex_);
  if (!connections_.emplace(id, connecting.connection).second) {
    connecting.report.error =
        Error{Code::kConflict, 0, "MCP server " + policy::quote(id) + " is connected already",
              "disconnect it first"};
    return;
  }
  for (Tool& tool : connecting.tools) {
    const std::string name = exposed_name(id, tool.name);
    const auto other = std::find_if(tools_.begin(), tools_.end(),
                                    [&](const ExposedTool& one) { return one.name == name; });
    if (other != tools_.end()) {
      connecting.report.notices.push_back(
          "the tool " + policy::quote(tool.name) + " is refused: " + name + " is the name of " +
          policy::quote(other->tool.name) + " of " + policy::quote(other->server) + " already");
      continue;
    }
    tools_.push_back({name, id, std::move(tool)});
    ++connecting.report.tools;
  }
}

std::vector<Servers::Report> Servers::connect(const std::vector<ServerConfig>& configs) {
  std::vector<Connecting> all(configs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    all[i].report.server = configs[i].id;
    if (i >= kAtOnce) {
      all[i].report.error = of_server(
          configs[i].id,
          Error{Code::kResource, 0, "there are more than " + std::to_string(kMostServers), {}});
      continue;
    }
    threads.emplace_back([this, &configs, &all, i] {
      if (Status opened = open(configs[i], all[i]); !opened.ok()) {
        all[i].report.error = of_server(configs[i].id, std::move(opened.error()));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<Report> reports;
  for (Connecting& one : all) {
    if (!one.report.error.has_value()) {
      add(one);
    }
    reports.push_back(std::move(one.report));
  }
  return reports;
}

Status Servers::disconnect(const std::string& server) {
  std::vector<std::shared_ptr<Connection>> ended;  // outside the lock: a server may take a while
  const std::lock_guard lock(mutex_);
  if (!server.empty() && !connections_.contains(server)) {
    return Error{
        Code::kNotFound, 0, "MCP server " + policy::quote(server) + " is not connected", {}};
  }
  for (auto at = connections_.begin(); at != connections_.end();) {
    if (server.empty() || at->first == server) {
      ended.push_back(std::move(at->second));
      at = connections_.erase(at);
    } else {
      ++at;
    }
  }
  std::erase_if(tools_,
                [&](const ExposedTool& one) { return server.empty() || one.server == server; });
  return {};
}

std::vector<ExposedTool> Servers::tools() const {
  const std::lock_guard lock(mutex_);
  return tools_;
}

std::vector<std::string> Servers::connected() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, connection] : connections_) {
    ids.push_back(id);
  }
  return ids;
}

Result<ToolResult> Servers::call(const std::string& name, const Json& arguments,
                                 const CallOptions& options) {
  ExposedTool tool;
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(tools_.begin(), tools_.end(),
                                    [&](const ExposedTool& one) { return one.name == name; });
    if (found == tools_.end()) {
      return Error{Code::kNotFound, 0, "there is no tool " + policy::quote(name), {}};
    }
    tool = *found;
    connection = connections_.at(tool.server);
  }
  const Patience patience{http::Clock::now() + options.timeout.value_or(connection->timeout),
                          options.cancel};
  const std::unique_lock lock(connection->mutex, patience.deadline);
  if (!lock.owns_lock()) {
    return of_server(tool.server, Error{Code::kTimeout, 0, "another call takes too long", {}});
  }
  auto result = call_tool(*connection->session,
                          {.tool = tool.tool, .arguments = arguments, .progress = options.progress},
                          patience);
  return result.ok() ? std::move(result) : of_server(tool.server, std::move(result.error()));
}

}  // namespace carrel::mcp
