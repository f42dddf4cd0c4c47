#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process.h"

namespace carrel::test {

// A registry of tests/support/registry.py on loopback, as long as this lives. Fails the test when
// it does not start.
class RegistryServer {
 public:
  // `which` is what the script's first argument can be, `how` its last.
  RegistryServer(const std::string& which, const std::string& directory,
                 const std::string& how = {});
  ~RegistryServer();
  RegistryServer(const RegistryServer&) = delete;
  RegistryServer& operator=(const RegistryServer&) = delete;

  // "127.0.0.1:PORT/NAME"
  [[nodiscard]] std::string image(const std::string& name) const;
  [[nodiscard]] int port() const { return port_; }
  // "sha256:HEX" of what was pushed under that name.
  [[nodiscard]] std::string digest(const std::string& name) const;
  // Moves the tag `v1` of `team/tool`.
  void move_tag();

  // What the one that misbehaves was asked: path, Range, Authorization.
  [[nodiscard]] nlohmann::json requests() const;
  [[nodiscard]] nlohmann::json description() const { return description_; }
  [[nodiscard]] std::string certificate() const { return directory_ + "/server.pem"; }

 private:
  std::string directory_;
  std::unique_ptr<Process> process_;
  nlohmann::json description_;
  int port_ = 0;
};

// The text of a Docker configuration with the password that the registries want.
std::string docker_config(const std::string& registry);

}  // namespace carrel::test
