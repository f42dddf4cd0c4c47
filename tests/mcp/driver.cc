// A client of MCP servers for tests: mcp_driver CONFIG [CONNECT_MS]. Connects to the servers of a
// file, and prints a line of JSON about each; then does what the lines on its standard input say,
// and prints one about each of those:
//
//   {"tools": true}
//   {"call": NAME, "arguments": {...}, "timeout_ms": N, "cancel_after_ms": N}
//   {"disconnect": ID}
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <thread>

#include "base/code_name.h"
#include "base/files.h"
#include "mcp/servers.h"
#include "policy/settings.h"

namespace {

using carrel::Error;
using carrel::mcp::Json;
using std::chrono::milliseconds;

void print(const Json& line) {
  std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

Json error_json(const Error& error) {
  return {{"code", carrel::code_name(error.code)}, {"message", error.to_string()}};
}

Json report_json(const carrel::mcp::Servers::Report& report) {
  Json line{{"server", report.server},
            {"version", report.version},
            {"name", report.about.name},
            {"tools", report.tools},
            {"notices", report.notices}};
  if (report.error.has_value()) {
    line["error"] = error_json(*report.error);
  }
  return line;
}

Json call(carrel::mcp::Servers& servers, const Json& order) {
  carrel::mcp::CallOptions options;
  if (order.contains("timeout_ms")) {
    options.timeout = milliseconds(order["timeout_ms"].get<int>());
  }
  const carrel::UniqueFd cancel(::eventfd(0, EFD_CLOEXEC));
  options.cancel = cancel.get();
  std::thread canceller;
  if (order.contains("cancel_after_ms")) {
    canceller = std::thread([&] {
      std::this_thread::sleep_for(milliseconds(order["cancel_after_ms"].get<int>()));
      (void)::eventfd_write(cancel.get(), 1);
    });
  }
  int heard = 0;
  options.progress = [&](const carrel::mcp::Progress&) { ++heard; };
  const auto begin = std::chrono::steady_clock::now();
  const auto result = servers.call(order["call"].get<std::string>(),
                                   order.value("arguments", Json::object()), options);
  const auto took = std::chrono::steady_clock::now() - begin;
  if (canceller.joinable()) {
    canceller.join();
  }
  Json line{{"took_ms", std::chrono::duration_cast<milliseconds>(took).count()},
            {"progress", heard}};
  if (!result.ok()) {
    line["error"] = error_json(result.error());
    return line;
  }
  line["text"] = result.value().text();
  line["structured"] = result.value().structured;
  line["failed"] = result.value().outcome == carrel::mcp::ToolResult::Outcome::kFailed;
  for (const carrel::mcp::Content& content : result.value().content) {
    if (content.kind == carrel::mcp::Content::Kind::kImage) {
      line["image"] = content.type + ":" + content.data;
    }
  }
  return line;
}

Json obey(carrel::mcp::Servers& servers, const Json& order) {
  if (order.contains("call")) {
    return call(servers, order);
  }
  if (order.contains("disconnect")) {
    const auto ended = servers.disconnect(order["disconnect"].get<std::string>());
    return ended.ok() ? Json{{"connected", servers.connected()}}
                      : Json{{"error", error_json(ended.error())}};
  }
  Json functions = Json::array();
  for (const carrel::mcp::ExposedTool& tool : servers.tools()) {
    functions.push_back(tool.function());
  }
  return {{"functions", functions}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "";
  auto text = carrel::read_file_at(AT_FDCWD, path);
  auto configs = text.ok() ? carrel::mcp::parse_servers(text.value(), path) : text.error();
  auto home = carrel::storage::Home::open();
  if (!configs.ok() || !home.ok()) {
    print({{"error", error_json(configs.ok() ? home.error() : configs.error())}});
    return 1;
  }
  carrel::mcp::Servers::Options options;
  options.sandboxes = carrel::mcp::in_new_sandbox(
      home.value(), {.spec = carrel::policy::default_spec(carrel::policy::Operation::kRun)});
  if (argc > 2) {
    options.connect_patience = milliseconds(std::stoi(argv[2]));
  }
  {
    carrel::mcp::Servers servers(options);
    for (const auto& report : servers.connect(configs.value())) {
      print(report_json(report));
    }
    for (std::string line; std::getline(std::cin, line);) {
      print(obey(servers, Json::parse(line)));
    }
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  print({{"peak_kib", usage.ru_maxrss}});
  return 0;
}
