#pragma once

#include <gtest/gtest.h>

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

  std::unique_ptr<Daemon> daemon_;
};

}  // namespace carrel::test
