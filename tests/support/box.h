#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// A long-lived sandbox of this test's, made by `carrel create`. It stays until the fixture removes
// all of them, so that a test sees what the program itself cleans up.
class Box {
 public:
  // Fails the test, with what was said, when it cannot be made.
  explicit Box(As as, std::vector<std::string> options = {});

  [[nodiscard]] const std::string& id() const { return id_; }

  // `carrel sh [options] ID text`
  [[nodiscard]] Run sh(const std::string& text, std::vector<std::string> options = {},
                       const Options& how = {.timeout_seconds = 20}) const;
  // The same with --json, parsed; an empty object, and a failed test, when it is not one object.
  [[nodiscard]] nlohmann::json result(const std::string& text,
                                      std::vector<std::string> options = {}) const;
  // `carrel exec ID -- words`
  [[nodiscard]] Run exec(std::vector<std::string> words,
                         const Options& how = {.timeout_seconds = 20}) const;
  // `carrel info --json ID`
  [[nodiscard]] nlohmann::json info() const;
  // `carrel logs --json ID`, one object a line.
  [[nodiscard]] std::vector<nlohmann::json> events() const;
  [[nodiscard]] Run remove(std::vector<std::string> options = {}) const;

  // The sandbox's first process, as the host sees it.
  [[nodiscard]] pid_t first_process() const;

 private:
  As as_;
  std::string id_;
};

}  // namespace carrel::test
