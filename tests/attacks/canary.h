#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace carrel::test {

// Things on the host that no sandbox may see, touch or reach: files in two home folders, a
// variable and open descriptors of the program itself, and three listeners. Everything that a test
// captures is searched for the secret that they hold.
class Canaries {
 public:
  // Makes them; `directory` is where the socket file goes.
  explicit Canaries(const std::string& directory);
  ~Canaries();
  Canaries(const Canaries&) = delete;
  Canaries& operator=(const Canaries&) = delete;

  [[nodiscard]] const std::string& secret() const { return secret_; }
  // NAME=VALUE for the environment of the program.
  [[nodiscard]] std::string variable() const { return "CARREL_CANARY_TOKEN=" + secret_; }
  // What the probe of listeners takes.
  [[nodiscard]] std::vector<std::string> listeners() const;

  // One line for each canary that was changed or reached; empty: none.
  [[nodiscard]] std::string harmed() const;

 private:
  struct File {
    std::string path;
    std::string state;
  };

  std::string secret_;
  std::string name_;
  std::string socket_path_;
  std::vector<File> files_;
  std::vector<int> inherited_;  // descriptors without close-on-exec
  std::vector<std::pair<std::string, int>> listening_;
  int port_ = 0;
};

// The files of the host by which a sandbox could take it over, with what they hold; taken before
// and after a test, the two are equal.
std::map<std::string, std::string> host_state();

}  // namespace carrel::test
