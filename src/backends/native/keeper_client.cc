#include "backends/native/keeper_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "policy/spec_json.h"

namespace carrel::native {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kLargestMessage = 4U << 20;
constexpr int kAnswerMs = 60'000;

sockaddr_un keeper_address(int run) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(run) + "/keeper";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Result<UniqueFd> connect_keeper(int run) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = keeper_address(run);
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("reach the keeper");
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != ::geteuid()) {
    return Error{Code::kDenied, 0, "the keeper's socket belongs to another user", {}};
  }
  return socket;
}

// Starts `carrel keeper` in a session of its own. It tells through `ready` that it listens, or that
// another one was quicker.
Status start_keeper(const storage::Home& home) {
  std::array<int, 2> ready{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd read_end(ready[0]);
  UniqueFd write_end(ready[1]);
  pid_t child = ::fork();
  if (child < 0) {
    return system_error("start the keeper");
  }
  if (child == 0) {
    // Twice: the keeper must not be a child that the caller could wait for by mistake.
    ::setsid();
    if (::fork() != 0) {
      ::_exit(0);
    }
    int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd : {0, 1, 2}) {
      if (::dup2(null, fd) < 0) {
        ::_exit(1);
      }
    }
    if (::dup2(write_end.get(), 3) < 0 || ::chdir("/") != 0) {
      ::_exit(1);
    }
    // No descriptor and no variable of the caller's goes along: the keeper lives longer than both.
    ::syscall(SYS_close_range, 4, ~0U, 0);
    const std::string place = "CARREL_HOME=" + home.path();
    const char* environment[] = {place.c_str(), "PATH=/usr/bin:/bin", nullptr};
    ::execle("/proc/self/exe", "carrel", "keeper", static_cast<char*>(nullptr), environment);
    ::_exit(1);
  }
  ::waitpid(child, nullptr, 0);
  write_end.reset();
  pollfd wait{read_end.get(), POLLIN, 0};
  std::array<char, 512> text{};
  if (::poll(&wait, 1, 10'000) != 1) {
    return Error{Code::kTimeout, 0, "the keeper does not start", {}};
  }
  ssize_t n = ::read(read_end.get(), text.data(), text.size());
  if (n < 1 || text[0] != 'k') {
    return Error{Code::kSystem, 0,
                 "the keeper does not start: " +
                     std::string(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0),
                 {}};
  }
  return {};
}

}  // namespace

std::string encode_create(const CreateRequest& request) {
  Json object;
  object["name"] = request.name;
  object["lease_ms"] = request.lease_ms;
  object["spec"] = policy::spec_to_json(request.spec, policy::Values::kIncluded);
  return object.dump();
}

Result<CreateRequest> decode_create(const std::string& text) {
  try {
    Json object = Json::parse(text);
    CreateRequest request;
    request.name = object.at("name").get<std::string>();
    request.lease_ms = object.at("lease_ms").get<std::uint64_t>();
    CARREL_ASSIGN(request.spec, policy::spec_from_json(object.at("spec").get<std::string>()));
    return request;
  } catch (const nlohmann::json::exception&) {
    return Error{Code::kInvalid, 0, "the request to the keeper is malformed", {}};
  }
}

std::string encode_answer(const Result<std::string>& id) {
  Json object;
  if (id.ok()) {
    object["id"] = id.value();
  } else {
    object["code"] = static_cast<int>(id.error().code);
    object["errno"] = id.error().error_number;
    object["message"] = id.error().message;
    object["hint"] = id.error().hint;
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> decode_answer(const std::string& text) {
  try {
    Json object = Json::parse(text);
    if (object.contains("id")) {
      return object.at("id").get<std::string>();
    }
    int code = object.at("code").get<int>();
    return Error{code >= 0 && code <= static_cast<int>(Code::kSystem) ? static_cast<Code>(code)
                                                                      : Code::kSystem,
                 object.at("errno").get<int>(), object.at("message").get<std::string>(),
                 object.at("hint").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return Error{Code::kSystem, 0, "the keeper's answer is malformed", {}};
  }
}

Status send_message(int socket, const std::string& text) {
  std::uint32_t size = static_cast<std::uint32_t>(text.size());
  std::string data(reinterpret_cast<const char*>(&size), sizeof size);
  data += text;
  std::string_view rest = data;
  while (!rest.empty()) {
    ssize_t n = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return system_error("talk to the keeper");
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<std::string> receive_message(int socket) {
  auto read_exactly = [&](char* out, std::size_t size) -> Status {
    while (size > 0) {
      pollfd wait{socket, POLLIN, 0};
      if (::poll(&wait, 1, kAnswerMs) == 0) {
        return Error{Code::kTimeout, 0, "the keeper does not answer", {}};
      }
      ssize_t n = ::read(socket, out, size);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        return Error{Code::kGone, 0, "the keeper ended", "try again"};
      }
      out += n;
      size -= static_cast<std::size_t>(n);
    }
    return {};
  };
  std::uint32_t size = 0;
  CARREL_TRY(read_exactly(reinterpret_cast<char*>(&size), sizeof size));
  if (size > kLargestMessage) {
    return Error{Code::kInvalid, 0, "a message to or from the keeper is too large", {}};
  }
  std::string text(size, '\0');
  CARREL_TRY(read_exactly(text.data(), text.size()));
  return text;
}

Result<std::string> create_sandbox(const storage::Home& home, const CreateRequest& request) {
  CARREL_ASSIGN(UniqueFd run, open_at(home.directory(), "run", O_PATH | O_DIRECTORY));
  auto socket = connect_keeper(run.get());
  // A keeper that is just leaving holds its lock a moment longer than its socket.
  for (int attempt = 0; !socket.ok() && attempt < 50; ++attempt) {
    if (socket.error().code == Code::kDenied) {
      return socket.error();
    }
    if (attempt > 0) {
      ::usleep(20'000);
    }
    CARREL_TRY(start_keeper(home));
    socket = connect_keeper(run.get());
  }
  if (!socket.ok()) {
    return socket.error();
  }
  CARREL_TRY(send_message(socket.value().get(), encode_create(request)));
  CARREL_ASSIGN(std::string answer, receive_message(socket.value().get()));
  return decode_answer(answer);
}

}  // namespace carrel::native
