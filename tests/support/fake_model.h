#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// The provider of models of tests/support/fake_model.py on loopback, as long as this lives. It
// takes one step for each request; see there.
class FakeModel {
 public:
  FakeModel(const std::string& directory, const nlohmann::json& steps);
  ~FakeModel();
  FakeModel(const FakeModel&) = delete;
  FakeModel& operator=(const FakeModel&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + port_; }
  [[nodiscard]] std::vector<nlohmann::json> requests() const;

 private:
  std::string directory_;
  std::string port_;
  std::unique_ptr<Process> process_;
};

}  // namespace carrel::test
