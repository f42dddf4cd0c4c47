#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/box.h"
#include "support/engine.h"
#include "support/fixture.h"

namespace carrel::test {

// A test with an engine of its program's own, at which nothing may be left.
template <typename Base, DockerEngine::Kind kind = DockerEngine::Kind::kDocker>
class WithEngine : public Base {
 protected:
  static void SetUpTestSuite() {
    if (::geteuid() == 0) {
      engine_ = std::make_unique<DockerEngine>(kind);
    }
  }
  static void TearDownTestSuite() { engine_.reset(); }

  void SetUp() override {
    if (engine_ == nullptr) {
      GTEST_SKIP() << "only root can start an engine";
    }
    Base::SetUp();
  }
  void TearDown() override {
    if (engine_ != nullptr) {
      Base::TearDown();
      EXPECT_TRUE(nothing_left()) << engine_->containers();
    }
  }

  static bool nothing_left() {
    return eventually(std::chrono::seconds(10), [] { return engine_->containers().empty(); });
  }

  // What names the walls on a command line.
  [[nodiscard]] virtual std::vector<std::string> walls() const { return {"--backend", "docker"}; }

  // The program with these words, the first of which is its command, and with these walls.
  Run docker(std::vector<std::string> words, const Options& options = {}) const {
    const std::vector<std::string> named = walls();
    words.insert(words.begin() + 1, named.begin(), named.end());
    return this->carrel(std::move(words), options);
  }
  [[nodiscard]] Box box(std::vector<std::string> options = {}) const {
    const std::vector<std::string> named = walls();
    options.insert(options.begin(), named.begin(), named.end());
    return Box(this->GetParam(), std::move(options));
  }

  // An engine that is changed on the way (engine_proxy.py), for as long as the process lives. It is
  // that of the engine's owner.
  [[nodiscard]] std::string changed_socket() const {
    return place().work(this->GetParam()) + "/proxy";
  }
  [[nodiscard]] std::unique_ptr<Process> change_engine(const std::string& change) const {
    const std::string socket = changed_socket();
    ::unlink(socket.c_str());
    Launch launch;
    launch.program = "/usr/bin/python3";
    launch.arguments = {"-B", CARREL_SUPPORT_SCRIPTS "/engine_proxy.py", socket, engine_->socket(),
                        change};
    launch.environment = {"PATH=/usr/bin:/bin"};
    launch.directory = "/";
    if (kind == DockerEngine::Kind::kRootlessDocker ||
        kind == DockerEngine::Kind::kRootlessPodman) {
      launch.switch_user = true;
      launch.uid = launch.gid = Place::user_id();
    }
    auto proxy = std::make_unique<Process>(launch);
    EXPECT_TRUE(proxy->wait_for_output("ready", std::chrono::seconds(10))) << proxy->err();
    return proxy;
  }
  Run changed(const std::string& change,
              std::vector<std::string> words = {"run", "--", "echo", "came in"}) const {
    const auto proxy = change_engine(change);
    return docker(std::move(words), {.environment = {"DOCKER_HOST=unix://" + changed_socket()}});
  }

  static inline std::unique_ptr<DockerEngine> engine_;
};

}  // namespace carrel::test
