#include "backends/native/keeper_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/native/remains.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "kernel/descriptors_child.h"
#include "sandbox/guest_stream.h"
#include "storage/box.h"

namespace carrel::native {

namespace {

constexpr int kAnswerMs = 60'000;
constexpr int kGreetMs = 2000;
constexpr int kHighFd = 64;

Result<UniqueFd> connect_keeper(int run) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(run, "keeper");
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

// In the child: from here to exec nothing of the caller's is used but what is on its stack.
[[noreturn]] void become_keeper(int ready, const char* program, const char* place,
                                const char* runtime) {
  ::setsid();
  // Twice: the keeper must not be a child that the caller could wait for by mistake, nor the leader
  // of a session that could get a terminal.
  if (::fork() != 0) {
    ::_exit(0);
  }
  int high = ::fcntl(ready, F_DUPFD, kHighFd);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (high < 0 || null < 0 || ::chdir("/") != 0) {
    ::_exit(1);
  }
  for (int fd : {0, 1, 2}) {
    if (::dup2(null, fd) < 0) {
      ::_exit(1);
    }
  }
  if (::dup2(high, 3) < 0) {
    ::_exit(1);
  }
  // No descriptor of the caller's goes along, and of its variables the place alone: the keeper
  // lives longer than both.
  if (kernel::close_descriptors(4, ~0U) != 0) {
    ::_exit(1);
  }
  const char* environment[] = {place, "PATH=/usr/bin:/bin", runtime, nullptr};
  ::execle("/proc/self/exe", program, "keeper", static_cast<char*>(nullptr), environment);
  ::_exit(1);
}

// Starts `carrel keeper` in a session of its own. It tells through a pipe that it listens, or that
// another one was quicker.
Status start_keeper(const storage::Home& home) {
  std::array<int, 2> ready{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd read_end(ready[0]);
  UniqueFd write_end(ready[1]);
  const std::string place = "CARREL_HOME=" + home.path();
  const char* directory = std::getenv("XDG_RUNTIME_DIR");  // where the user's service manager is
  const std::string runtime = std::string("XDG_RUNTIME_DIR=") + (directory ? directory : "");
  std::array<char, 4096> program{"carrel"};  // under its path it is found in a list of processes
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) {
    return system_error("find this program");
  }
  pid_t child = ::fork();
  if (child < 0) {
    return system_error("start the keeper");
  }
  if (child == 0) {
    become_keeper(write_end.get(), program.data(), place.c_str(),
                  directory == nullptr ? nullptr : runtime.c_str());
  }
  ::waitpid(child, nullptr, 0);
  write_end.reset();
  pollfd wait{read_end.get(), POLLIN, 0};
  std::array<char, 512> text{};
  if (::poll(&wait, 1, 10'000) != 1) {
    return Error{Code::kTimeout, 0, "the keeper does not start", {}};
  }
  ssize_t n = ::read(read_end.get(), text.data(), text.size());
  if (n == 0) {
    return Error{Code::kGone, 0, "the keeper ended before it listened", "try again"};
  }
  if (n < 1 || text[0] != 'k') {
    return Error{Code::kSystem,
                 0,
                 "the keeper does not start: " +
                     std::string(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0),
                 {}};
  }
  return {};
}

Status send_message(int socket, const std::string& text, std::vector<int> descriptors) {
  const std::string data = frame_message(text);
  std::string_view rest = data;
  while (!rest.empty()) {
    ssize_t n = send_with(socket, rest, descriptors, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return Error{Code::kGone, errno, "the keeper ended", "try again"};
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
    descriptors.clear();
  }
  return {};
}

Status read_exactly(int socket, char* out, std::size_t size) {
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
}

Result<std::string> receive_message(int socket) {
  std::uint32_t size = 0;
  CARREL_TRY(read_exactly(socket, reinterpret_cast<char*>(&size), sizeof size));
  if (size > kLargestMessage) {
    return Error{Code::kInvalid, 0, "the keeper's answer is too large", {}};
  }
  std::string text(size, '\0');
  CARREL_TRY(read_exactly(socket, text.data(), text.size()));
  return text;
}

Result<UniqueFd> reach_keeper(const storage::Home& home) {
  constexpr int kTries = 100;
  constexpr int kStepUs = 20'000;
  CARREL_ASSIGN(UniqueFd run, open_at(home.directory(), "run", O_PATH | O_DIRECTORY));
  auto socket = connect_keeper(run.get());
  // A keeper that is just leaving holds its lock a moment longer than its socket.
  for (int attempt = 0; !socket.ok() && attempt < kTries; ++attempt) {
    if (socket.error().code == Code::kDenied) {
      return socket.error();
    }
    if (attempt > 0) {
      ::usleep(kStepUs);
    }
    Status started = start_keeper(home);
    if (!started.ok() && started.error().code != Code::kGone) {
      return started.error();
    }
    socket = connect_keeper(run.get());
  }
  return socket;
}

// After the death of the keeper that was asked: whether it had finished, which its record says.
// Waits until the sandbox is reached or gone.
bool was_finished(storage::Home& home, const std::string& id) {
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    auto record = storage::read_record(home, id);
    if (record.ok()) {
      if (auto socket = storage::connect_box(home, record.value()); socket.ok()) {
        sandbox::GuestStream stream(std::move(socket.value()));
        if (stream.greet(id, kGreetMs).ok()) {
          return true;
        }
      }
    }
    sweep_boxes(home);
    if (auto lock = storage::lock_box(home, id, 0);
        !lock.ok() && lock.error().code == Code::kNotFound) {
      return false;
    }
    ::usleep(10'000);
  }
  return false;
}

Result<std::string> ask_keeper(const storage::Home& home, const CreateRequest& request) {
  CARREL_ASSIGN(UniqueFd socket, reach_keeper(home));
  std::vector<int> descriptors;
  for (const GivenTree& tree : request.trees) {
    descriptors.push_back(tree.source.get());
  }
  CARREL_TRY(send_message(socket.get(), encode_create(request), std::move(descriptors)));
  CARREL_ASSIGN(std::string text, receive_message(socket.get()));
  auto answer = decode_answer(text);
  if (answer.ok()) {
    // It is stored and runs, whether or not the keeper still hears this.
    (void)::send(socket.get(), &kTaken, 1, MSG_NOSIGNAL);
  }
  return answer;
}

}  // namespace

// A lock of the open file description and not flock(): asking for its holder does not take it.
Result<UniqueFd> lock_keeper(const storage::Home& home) {
  CARREL_ASSIGN(UniqueFd file,
                open_at(home.directory(), "run/keeper.lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_OFD_SETLK, &whole) != 0) {
    return errno == EAGAIN || errno == EACCES
               ? Error{Code::kConflict, 0, "another keeper is running", {}}
               : system_error("lock 'run/keeper.lock'");
  }
  return file;
}

bool keeper_is_alive(const storage::Home& home) {
  auto file = open_at(home.directory(), "run/keeper.lock", O_RDONLY | O_NOFOLLOW);
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return file.ok() && ::fcntl(file.value().get(), F_OFD_GETLK, &whole) == 0 &&
         whole.l_type != F_UNLCK;
}

Result<std::string> create_sandbox(storage::Home& home, CreateRequest request) {
  constexpr int kKeepers = 10;
  Result<std::string> answer = Error{};
  for (int keepers = 0; keepers < kKeepers; ++keepers) {
    request.id = storage::make_id();
    answer = ask_keeper(home, request);
    if (answer.ok() || answer.error().code != Code::kGone) {
      return answer;
    }
    if (was_finished(home, request.id)) {
      return request.id;
    }
  }
  return answer;
}

}  // namespace carrel::native
