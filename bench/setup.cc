#include "bench/setup.h"

namespace carrel::bench {

namespace {

void append(std::vector<std::string>& to, std::vector<std::string> words) {
  for (std::string& word : words) {
    to.push_back(std::move(word));
  }
}

std::string name_of(Who who) { return who == Who::kRoot ? "root" : "user"; }

}  // namespace

std::string home_path(const Setup& setup, Who who, const std::string& home) {
  return setup.directory + "/" + name_of(who) + "/" + home;
}

Launch plain_launch(std::vector<std::string> arguments) {
  Launch launch;
  launch.arguments = std::move(arguments);
  return launch;
}

Launch carrel_launch(const Setup& setup, Who who, const std::string& home,
                     std::vector<std::string> arguments) {
  Launch launch = plain_launch({setup.carrel});
  append(launch.arguments, std::move(arguments));
  launch.environment = {"CARREL_HOME=" + home_path(setup, who, home)};
  if (setup.has_docker()) {
    launch.environment.push_back("DOCKER_HOST=unix://" + setup.docker_socket);
  }
  if (who == Who::kUser) {
    launch.user = setup.user;
  }
  return launch;
}

Launch bwrap_launch(const Setup& setup, Who who, std::vector<std::string> command) {
  Launch launch = plain_launch({setup.bwrap, "--unshare-all", "--die-with-parent",
                                "--ro-bind", "/usr",          "/usr",
                                "--symlink", "usr/bin",       "/bin",
                                "--symlink", "usr/lib",       "/lib",
                                "--symlink", "usr/lib64",     "/lib64",
                                "--proc",    "/proc",         "--dev",
                                "/dev",      "--tmpfs",       "/tmp"});
  append(launch.arguments, std::move(command));
  if (who == Who::kUser) {
    launch.user = setup.user;
  }
  return launch;
}

Launch runc_launch(const Setup& setup, int bundle) {
  const std::string number = std::to_string(bundle);
  return plain_launch({setup.runc, "--root", setup.directory + "/runc", "run", "--bundle",
                       setup.bundles + "/" + number, "carrel-bench-" + number});
}

Launch docker_launch(const Setup& setup, std::vector<std::string> arguments) {
  Launch launch = plain_launch({setup.docker, "--host", "unix://" + setup.docker_socket});
  append(launch.arguments, std::move(arguments));
  launch.environment = {"HOME=" + setup.directory, "DOCKER_CONFIG=" + setup.directory};
  return launch;
}

Launch docker_run_launch(const Setup& setup, std::vector<std::string> options,
                         std::vector<std::string> command) {
  std::vector<std::string> arguments = {"run", "--network", "none"};
  append(arguments, std::move(options));
  arguments.push_back(setup.image);
  append(arguments, std::move(command));
  return docker_launch(setup, std::move(arguments));
}

Result<std::string> create_box(const Setup& setup, Who who, const std::string& home,
                               const std::string& group, const std::vector<std::string>& options) {
  std::vector<std::string> words = {"create"};
  words.insert(words.end(), options.begin(), options.end());
  Launch launch = carrel_launch(setup, who, home, std::move(words));
  launch.group = group;
  CARREL_ASSIGN(std::string id, output_of(launch));
  // The shell starts with the first command.
  CARREL_ASSIGN(std::string answer,
                output_of(carrel_launch(setup, who, home, {"sh", id, "echo ready"})));
  if (answer != "ready") {
    return Error{Code::kSystem, 0, "the shell of a new sandbox answers '" + answer + "'", {}};
  }
  return id;
}

Status remove_box(const Setup& setup, Who who, const std::string& home, const std::string& id) {
  auto removed = output_of(carrel_launch(setup, who, home, {"rm", id}));
  return removed.ok() ? Status() : Status(removed.error());
}

}  // namespace carrel::bench
