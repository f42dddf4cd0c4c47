#include "support/engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "http/client.h"
#include "support/host.h"
#include "support/place.h"

namespace carrel::test {

namespace {

// Its parent ends at once, so that it has none of ours.
void start_apart(const std::string& directory, const char* kind, const std::string& user,
                 int input) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    if (::fork() == 0) {
      ::dup2(input, STDIN_FILENO);
      const int log = ::open((directory + "/helper.log").c_str(), O_WRONLY | O_CREAT, 0600);
      ::dup2(log, STDOUT_FILENO);
      ::dup2(log, STDERR_FILENO);
      ::execl("/usr/bin/python3", "python3", "-B", CARREL_SUPPORT_SCRIPTS "/dockerd.py",
              directory.c_str(), kind, user.c_str(), nullptr);
      ::_exit(127);
    }
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

}  // namespace

DockerEngine::DockerEngine(Kind kind) {
  std::string name = "/tmp/carrel-engine-XXXXXX";
  std::array<int, 2> ends{};
  if (::mkdtemp(name.data()) == nullptr || ::pipe2(ends.data(), O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no directory for an engine";
    return;
  }
  directory_ = name;
  std::filesystem::permissions(directory_, static_cast<std::filesystem::perms>(0755));
  input_ = ends[1];
  const bool podman = kind == Kind::kPodman || kind == Kind::kRootlessPodman;
  const bool rootless = kind == Kind::kRootlessDocker || kind == Kind::kRootlessPodman;
  start_apart(directory_,
              podman                       ? "podman"
              : kind == Kind::kOnSmallDisk ? "small-disk"
                                           : "docker",
              rootless ? std::to_string(Place::user_id()) : "", ends[0]);
  ::close(ends[0]);
  if (!await_ready()) {
    ADD_FAILURE() << "the engine does not start (packages docker.io, podman, rootlesskit, "
                     "slirp4netns, uidmap): "
                  << read_text(directory_ + "/helper.log").value_or("");
  }
  ::setenv("DOCKER_HOST", ("unix://" + socket()).c_str(), 1);
}

DockerEngine::~DockerEngine() {
  ::close(input_);
  EXPECT_TRUE(eventually(std::chrono::seconds(30), [this] {
    return !std::filesystem::exists(directory_);
  })) << "the engine did not end";
}

bool DockerEngine::await_ready() const {
  const std::string ready = directory_ + "/ready";
  const bool came = eventually(std::chrono::seconds(50), [&] {
    return ::access(ready.c_str(), F_OK) == 0 || ::access(directory_.c_str(), F_OK) != 0;
  });
  return came && ::unlink(ready.c_str()) == 0;
}

pid_t DockerEngine::pid() const {
  return std::atoi(read_text(directory_ + "/pid").value_or("0").c_str());
}

std::string DockerEngine::data() const {
  return "/proc/" + std::to_string(pid()) + "/root" + directory_ + "/data";
}

void DockerEngine::start_again() {
  EXPECT_EQ(::write(input_, "start\n", 6), 6);
  EXPECT_TRUE(await_ready());
}

std::string DockerEngine::ask(const std::string& method, const std::string& target,
                              const std::string& body) const {
  http::ClientOptions options;
  options.unix_socket = socket();
  http::Client client(std::move(options));
  http::Request request;
  request.method = method == "GET"      ? http::Method::kGet
                   : method == "DELETE" ? http::Method::kDelete
                                        : http::Method::kPost;
  request.url = {http::Scheme::kHttp, "localhost", 80, target};
  if (!body.empty()) {
    request.headers.push_back({"Content-Type", "application/json"});
    request.body = body;
  }
  auto answer = client.fetch(request, 8U << 20, std::chrono::seconds(30));
  return answer.ok() ? answer->body : answer.error().to_string();
}

std::string DockerEngine::import_files(
    const std::string& name, const std::vector<std::pair<std::string, std::string>>& files) const {
  const std::string tree = directory_ + "/tree";
  for (const auto& [path, content] : files) {
    std::filesystem::create_directories(std::filesystem::path(tree + "/" + path).parent_path());
    std::ofstream(tree + "/" + path) << content;
    std::filesystem::permissions(tree + "/" + path, std::filesystem::perms(0755));
  }
  const std::string archive = directory_ + "/tree.tar";
  EXPECT_EQ(std::system(("tar -C " + tree + " -cf " + archive + " .").c_str()), 0);
  http::ClientOptions options;
  options.unix_socket = socket();
  http::Client client(std::move(options));
  http::Request request;
  request.method = http::Method::kPost;
  request.headers.push_back({"Content-Type", "application/x-tar"});
  request.body = read_text(archive).value_or("");
  const std::size_t colon = name.rfind(':');
  request.url = {http::Scheme::kHttp, "localhost", 80,
                 "/images/create?fromSrc=-&repo=" + http::encode_query(name.substr(0, colon)) +
                     "&tag=" + http::encode_query(name.substr(colon + 1))};
  auto answer = client.fetch(request, 1U << 20, std::chrono::seconds(30));
  std::filesystem::remove_all(tree);
  return answer.ok() ? answer->body : answer.error().to_string();
}

std::string DockerEngine::containers() const {
  const auto list = nlohmann::json::parse(
      ask("GET", "/containers/json?all=1&filters=" +
                     http::encode_query(R"({"label":["carrel.installation"]})")),
      nullptr, false);
  std::string text = list.is_array() ? "" : "no answer\n";
  for (const auto& one : list.is_array() ? list : nlohmann::json::array()) {
    const std::string id = one["Id"];
    // An engine that is started again can list one that it has removed meanwhile, until it ends.
    const bool is_listed_only =
        one.value("State", "") == "dead" &&
        ask("GET", "/containers/" + id + "/json").find("No such container") != std::string::npos;
    text += is_listed_only ? "" : id + "\n";
  }
  return text;
}

}  // namespace carrel::test
