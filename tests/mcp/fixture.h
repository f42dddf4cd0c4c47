#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/fixture.h"

namespace carrel::test {

using Json = nlohmann::ordered_json;

// The MCP client, in a driver program (driver.cc) that is started as root and as an ordinary user,
// against servers that are programs.
class McpTest : public CarrelTest {
 protected:
  // What the driver printed: a line for each server, one for each order, and how much memory it
  // had.
  struct Driven {
    std::vector<Json> reports;
    std::vector<Json> answers;
    long peak_kib = 0;
    std::chrono::milliseconds duration{0};
    std::string errors;
  };
  Driven drive(const Json& servers, const std::vector<Json>& orders, int connect_ms = 30'000) const;

  // Programs that run on the host.
  [[nodiscard]] Json python_sdk(const std::string& protocol) const;
  enum class Line { kLegacy, kModern };  // of the TypeScript SDK, which has two
  [[nodiscard]] Json typescript_sdk(Line line) const;
  [[nodiscard]] Json odd_server(const std::string& mode) const;
  // The same SDKs as servers of HTTP, until the end of the test; returns the address.
  enum class Sdk { kPython, kTypescript, kTypescriptModern };
  std::string serve(Sdk sdk);

  // The text of a script of this folder.
  [[nodiscard]] static std::string script(const std::string& name);
  // Where the SDKs are, for every user.
  [[nodiscard]] static const std::string& sdks();

  void SetUp() override;
  void TearDown() override;

 private:
  std::vector<std::unique_ptr<Process>> serving_;
};

}  // namespace carrel::test
