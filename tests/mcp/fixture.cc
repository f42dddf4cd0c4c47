#include "mcp/fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace carrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kPython = "/usr/bin/python3";

sockaddr_in on_loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = on_loopback(0);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, size) != 0 || ::getsockname(fd, generic, &size) != 0) {
    std::abort();
  }
  ::close(fd);
  return ntohs(address.sin_port);
}

bool listens(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = on_loopback(port);
  const bool good = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return good;
}

}  // namespace

// An ordinary user may not get to the build directory: for him they are mounted elsewhere, which
// this test's mount namespace alone sees.
const std::string& McpTest::sdks() {
  static const std::string found = [] {
    const std::string installed = CARREL_MCP_SDKS;
    if (::geteuid() != 0) {
      return installed;
    }
    if (::access((installed + "/stamp").c_str(), R_OK) != 0 ||
        ::mount(installed.c_str(), "/mnt", nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, "/mnt", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) {
      return std::string("/nonexistent");
    }
    return std::string("/mnt");
  }();
  return found;
}

std::string McpTest::script(const std::string& name) {
  const auto text = read_text(std::string(CARREL_MCP_SCRIPTS) + "/" + name);
  if (!text.has_value()) {
    std::abort();
  }
  return *text;
}

Json McpTest::python_sdk(const std::string& protocol) const {
  return {{"command", sdks() + "/python/bin/python"},
          {"args", {"-B", file("sdk_server.py", script("sdk_server.py")), "stdio"}},
          {"sandbox", false},
          {"protocol", protocol}};
}

Json McpTest::typescript_sdk(Line line) const {
  const std::string own = sdks() + "/node/node_modules/.bin/node";
  return {{"command", ::access(own.c_str(), X_OK) == 0 ? own : std::string("/usr/bin/node")},
          {"args",
           {file("sdk_server.mjs", script("sdk_server.mjs")),
            line == Line::kModern ? "modern" : "legacy", "stdio"}},
          {"env", {{"MCP_SDK", sdks() + "/node"}}},
          {"sandbox", false}};
}

Json McpTest::odd_server(const std::string& mode) const {
  return {{"command", kPython},
          {"args", {"-B", file("odd_server.py", script("odd_server.py")), mode}},
          {"sandbox", false}};
}

std::string McpTest::serve(Sdk sdk) {
  const std::uint16_t port = free_port();
  const Json stdio = sdk == Sdk::kPython
                         ? python_sdk("auto")
                         : typescript_sdk(sdk == Sdk::kTypescript ? Line::kLegacy : Line::kModern);
  Launch launch = place().launch(GetParam(), {});
  launch.program = stdio["command"].get<std::string>();
  launch.arguments = stdio["args"].get<std::vector<std::string>>();
  launch.arguments.back() = "http";
  launch.arguments.push_back(std::to_string(port));
  launch.environment.push_back("MCP_SDK=" + sdks() + "/node");
  serving_.push_back(std::make_unique<Process>(launch));
  EXPECT_TRUE(eventually(seconds(20), [&] { return listens(port); })) << "no server of HTTP";
  return "http://127.0.0.1:" + std::to_string(port) + "/mcp";
}

McpTest::Driven McpTest::drive(const Json& servers, const std::vector<Json>& orders,
                               int connect_ms) const {
  const std::string config = file("servers.json", Json{{"mcpServers", servers}}.dump());
  std::string input;
  for (const Json& order : orders) {
    input += order.dump() + "\n";
  }
  Launch launch = place().launch(GetParam(), {config, std::to_string(connect_ms)});
  const std::string program = place().program() + "-mcp-driver";
  if (::access(program.c_str(), X_OK) != 0) {
    write_text(program, read_text(CARREL_MCP_DRIVER).value_or(""), 0755);
  }
  launch.program = program;
  Process process(launch);
  process.write(input);
  const Run run = process.wait(seconds(120));
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  Driven driven;
  driven.duration = run.duration;
  driven.errors = run.err;
  std::vector<Json> lines;
  for (std::size_t at = 0, end = 0; (end = run.out.find('\n', at)) != std::string::npos;
       at = end + 1) {
    lines.push_back(Json::parse(run.out.substr(at, end - at), nullptr, false));
  }
  if (lines.size() != servers.size() + orders.size() + 1) {
    ADD_FAILURE() << "the driver printed " << run.out << run.err;
    std::abort();
  }
  const auto middle = lines.begin() + static_cast<std::ptrdiff_t>(servers.size());
  driven.reports.assign(lines.begin(), middle);
  driven.answers.assign(middle, lines.end() - 1);
  driven.peak_kib = lines.back()["peak_kib"].get<long>();
  return driven;
}

// What is mounted for all tests is not left behind by one of them.
void McpTest::SetUp() {
  renew_place();
  (void)sdks();
  CarrelTest::SetUp();
}

void McpTest::TearDown() {
  serving_.clear();
  CarrelTest::TearDown();
}

}  // namespace carrel::test
