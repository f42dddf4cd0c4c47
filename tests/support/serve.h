#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/api.h"
#include "support/fixture.h"

namespace carrel::test {

using nlohmann::json;

// A test with a daemon.
class ServeTest : public CarrelTest {
 protected:
  void TearDown() override {
    daemon_.reset();
    CarrelTest::TearDown();
  }

  void serve(std::vector<std::string> options = {}) {
    daemon_ = std::make_unique<Daemon>(GetParam(), std::move(options));
  }
  ApiAnswer get(const std::string& path) { return ask(daemon_->socket(), {.path = path}); }
  ApiAnswer post(const std::string& path, const json& body, std::vector<std::string> headers = {}) {
    return ask(
        daemon_->socket(),
        {.method = "POST", .path = path, .body = body.dump(), .headers = std::move(headers)});
  }
  ApiAnswer remove(const std::string& path) {
    return ask(daemon_->socket(), {.method = "DELETE", .path = path});
  }
  // The path of a new sandbox.
  std::string create(const json& body = json::object()) {
    const ApiAnswer made = post("/v1/sandboxes", body);
    EXPECT_EQ(made.status, 201) << made.body;
    return made.status == 201 ? "/v1/sandboxes/" + made.json()["id"].get<std::string>() : "";
  }
  json shell(const std::string& box, const std::string& command) {
    const ApiAnswer answer = post(box + "/shell", {{"command", command}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? answer.json() : json::object();
  }
  std::string start(const std::string& box, const json& body) {
    const ApiAnswer answer = post(box + "/commands", body);
    EXPECT_EQ(answer.status, 201) << answer.body;
    return answer.status == 201 ? box + "/commands/" + answer.json()["id"].get<std::string>() : "";
  }
  // Its first process, which nobody inside can reach, is killed from outside.
  void kill_guest(const std::string& box) {
    const std::string id = box.substr(box.rfind('/') + 1);
    std::ifstream record(place().home(GetParam()) + "/run/box/" + id + "/record");
    for (std::string line; std::getline(record, line);) {
      if (line.starts_with("pid=")) {
        EXPECT_EQ(::kill(std::stoi(line.substr(4)), SIGKILL), 0);
        return;
      }
    }
    ADD_FAILURE() << "there is no record of " << box;
  }

  std::unique_ptr<Daemon> daemon_;
};

}  // namespace carrel::test
