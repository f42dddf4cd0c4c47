#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/process.h"

namespace carrel::test {

// A real Docker engine of this test's own (dockerd.py). It is nobody's child, so that what the test
// starts is all that is below the test, and it has to be made before the first place. The tests'
// programs find it by DOCKER_HOST, which it sets.
class DockerEngine {
 public:
  // The rootless ones are the ordinary user's. The last one keeps its data on a disk of 16 MiB,
  // which only it sees.
  enum class Kind { kDocker, kPodman, kRootlessDocker, kRootlessPodman, kOnSmallDisk };
  explicit DockerEngine(Kind kind = Kind::kDocker);
  ~DockerEngine();
  DockerEngine(const DockerEngine&) = delete;
  DockerEngine& operator=(const DockerEngine&) = delete;

  [[nodiscard]] std::string socket() const { return directory_ + "/socket"; }
  [[nodiscard]] pid_t pid() const;
  // After it was ended.
  void start_again();
  // Where it keeps its data, as this process sees what only it has mounted.
  [[nodiscard]] std::string data() const;

  // What it has, by `docker`-like names: "GET", "/containers/json?all=1".
  [[nodiscard]] std::string ask(const std::string& method, const std::string& target,
                                const std::string& body = {}) const;
  // Makes an image of files with these contents, by their paths, that can be executed; its answer.
  [[nodiscard]] std::string import_files(
      const std::string& name, const std::vector<std::pair<std::string, std::string>>& files) const;
  // The ids of all containers that any installation of Carrel has, one a line.
  [[nodiscard]] std::string containers() const;

 private:
  bool await_ready() const;

  std::string directory_;
  int input_ = -1;
};

}  // namespace carrel::test
