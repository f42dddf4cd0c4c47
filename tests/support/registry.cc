#include "support/registry.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/host.h"

namespace carrel::test {

namespace {

using nlohmann::json;

constexpr std::chrono::seconds kPatience(30);

json last_line(const std::string& text) {
  const std::string line = text.substr(0, text.rfind('\n'));
  return json::parse(line.substr(line.rfind('\n') + 1), nullptr, false);
}

}  // namespace

RegistryServer::RegistryServer(const std::string& which, const std::string& directory,
                               const std::string& how)
    : directory_(directory) {
  Launch launch;
  launch.program = "/usr/bin/python3";
  launch.arguments = {"-B", CARREL_REGISTRY_SCRIPT, which, directory, "/bin/busybox", how};
  launch.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  launch.directory = "/";
  std::filesystem::create_directories(directory);
  process_ = std::make_unique<Process>(launch);
  if (!process_->wait_for_output("\n", kPatience)) {
    ADD_FAILURE() << "no registry (docker-registry, openssl and busybox-static are needed): "
                  << process_->wait(kPatience).err;
    return;
  }
  description_ = last_line(process_->out());
  port_ = description_.value("port", 0);
  std::filesystem::permissions(
      directory, std::filesystem::perms::others_exec | std::filesystem::perms::others_read,
      std::filesystem::perm_options::add);
}

RegistryServer::~RegistryServer() { (void)process_->wait(kPatience); }

std::string RegistryServer::image(const std::string& name) const {
  return "127.0.0.1:" + std::to_string(port_) + "/" + name;
}

std::string RegistryServer::digest(const std::string& name) const {
  return description_["digests"].value(name, "");
}

void RegistryServer::move_tag() {
  process_->write("move\n");
  ASSERT_TRUE(process_->wait_for_output("\"digest\": ", kPatience));
}

json RegistryServer::requests() const {
  return json::parse(read_text(directory_ + "/requests.json").value_or("[]"), nullptr, false);
}

std::string docker_config(const std::string& registry) {
  // tester:s3cret
  return json{{"auths", {{registry, {{"auth", "dGVzdGVyOnMzY3JldA=="}}}}}}.dump();
}

}  // namespace carrel::test
