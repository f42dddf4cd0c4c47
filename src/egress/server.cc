#include "egress/server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/files.h"
#include "base/unix_socket.h"
#include "egress/guest_sockets.h"
#include "egress/io.h"
#include "egress/lockdown.h"
#include "egress/registration.h"
#include "egress/request.h"
#include "egress/rooms.h"
#include "storage/background.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kIdle{10};
constexpr std::chrono::seconds kRequestPatience{10};
constexpr rlim_t kDescriptors = 65'536;

// Where registrations are announced. Bound and listening; the lock says that there is one.
struct Post {
  UniqueFd lock;
  UniqueFd listener;
};

Result<Post> open_post(const storage::Home& home) {
  Post post;
  CARREL_ASSIGN(post.lock, storage::lock_background(home, kProcess));
  CARREL_ASSIGN(const UniqueFd run, open_at(home.directory(), "run", O_PATH | O_DIRECTORY));
  post.listener = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = socket_address(run.get(), kProcess);
  (void)::unlinkat(run.get(), kProcess, 0);
  if (!post.listener.valid() ||
      ::bind(post.listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0 ||
      ::listen(post.listener.get(), 64) != 0) {
    return system_error("listen for the sandboxes' registrations");
  }
  return post;
}

class Server {
 public:
  Server(storage::Home& home, UniqueFd listener)
      : home_(&home), listener_(service_.loop, std::move(listener)), rooms_(home, service_) {}

  Status open() {
    CARREL_ASSIGN(service_.log, DecisionLog::open(home_->directory()));
    service_.upstream.open(service_.log.directory());
    CARREL_TRY(make_registrations(*home_));
    CARREL_ASSIGN(service_.secrets, storage::Secrets::open(*home_));
    return lock_down(*home_);
  }

  Status run() {
    rooms_.adopt();
    spawn(accept());
    spawn(leave_when_idle());
    CARREL_TRY(service_.loop.run());
    (void)::unlinkat(home_->directory(), "run/egress", 0);
    return {};
  }

 private:
  Task<void> accept() {
    for (;;) {
      UniqueFd client(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (client.valid()) {
        spawn(serve(std::move(client)));
      } else if (errno == EAGAIN) {
        co_await listener_.readable();
      } else {
        co_await service_.loop.sleep(in(std::chrono::milliseconds(50)));
      }
    }
  }

  // One request and its answer, each a JSON object in a line.
  Task<void> serve(UniqueFd fd) {
    ++busy_;
    Watched client(service_.loop, std::move(fd));
    ucred peer{};
    socklen_t size = sizeof peer;
    // CRITICAL: nobody else may change what a sandbox can reach.
    const bool own = ::getsockopt(client.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                     peer.uid == ::geteuid();
    Request request;
    bool asked = false;
    if (own) {
      const Deadline deadline = in(kRequestPatience);
      asked = co_await receive_request(client, request, deadline);
    }
    bool stays = false;
    if (asked) {
      const std::string operation = request.operation;
      const std::string answer = co_await answer_to(std::move(request));
      const Deadline latest = in(kRequestPatience);
      const bool told = co_await write_whole(client, bytes_of(answer), latest);
      stays = told && operation == "attend";
    }
    --busy_;
    last_used_ = Clock::now();
    // Whoever attends sees by the end of this connection that nobody serves any more.
    std::array<std::uint8_t, 64> buffer;
    while (stays) {
      const auto n = co_await read_some(client, buffer);
      stays = n > 0;
    }
  }

  Task<std::string> answer_to(Request request) {
    const std::string operation = request.operation;
    const std::string id = request.id;
    nlohmann::ordered_json answer = nlohmann::ordered_json::object();
    Status status;
    if (operation == "attach") {
      status = co_await rooms_.attach(id);
    } else if (operation == "attend" && !request.descriptors.empty()) {
      status = co_await begin(std::move(request));
    } else if (operation == "ensure" || operation == "attend") {
      status = co_await rooms_.ensure(id);
      if (!status.ok() && operation == "attend") {
        rooms_.serve_later(id);
      }
    } else if (operation == "usage") {
      if (const std::shared_ptr<Room> room = rooms_.find(id)) {
        const Usage& usage = room->usage();
        answer = {{"bytes_out", usage.bytes_out},
                  {"bytes_in", usage.bytes_in},
                  {"connections", usage.connections},
                  {"live", room->live()},
                  {"denied", usage.denied}};
      } else {
        status = Error{Code::kNotFound, 0, "sandbox " + id + " has no network", {}};
      }
    } else {
      status = Error{Code::kInvalid, 0, "the egress process does not know this request", {}};
    }
    if (!status.ok()) {
      answer["error"] = status.error().to_string();
    }
    co_return answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }

  // CRITICAL: no command of the sandbox runs before this is answered.
  Task<Status> begin(Request request) {
    UniqueFd guest = std::move(request.descriptors.front());
    request.descriptors.erase(request.descriptors.begin());
    auto sockets = check_sockets(std::move(request.descriptors), request.present);
    if (!sockets.ok()) {
      co_return sockets.error();
    }
    const Status begun =
        co_await rooms_.begin(request.id, std::move(guest), std::move(sockets.value()));
    co_return begun;
  }

  Task<void> leave_when_idle() {
    while (!home_->is_removed() &&
           (!rooms_.idle() || busy_ > 0 ||
            Clock::now() - std::max(last_used_, rooms_.last_used()) < kIdle)) {
      co_await service_.loop.sleep(in(std::chrono::seconds(1)));
    }
    service_.loop.stop();
  }

  storage::Home* home_;
  Service service_;
  Watched listener_;
  Rooms rooms_;
  int busy_ = 0;
  Deadline last_used_ = Clock::now();
};

void settle() {
  ::signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT}) {
    ::signal(number, SIG_IGN);
  }
  ::umask(077);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = std::min(limit.rlim_max, kDescriptors);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

int serve(storage::Home& home, UniqueFd listener) {
  Server server(home, std::move(listener));
  Status ended = server.open();
  if (ended.ok()) {
    ended = server.run();
  }
  return ended.ok() ? 0 : 1;
}

// Starts the process that does the work, and another one when it died. Whoever asks meanwhile waits
// at the listener, which stays open. It parses nothing and holds nothing else.
int supervise(storage::Home& home, Post& post) {
  constexpr std::chrono::milliseconds kShortest{50};
  constexpr std::chrono::milliseconds kLongest{5000};
  constexpr std::chrono::seconds kHealthy{10};
  if (!give_up_rights().ok()) {
    return 1;
  }
  auto pause = kShortest;
  for (;;) {
    const Deadline begun = Clock::now();
    const pid_t worker = ::fork();
    if (worker == 0) {
      ::_exit(serve(home, std::move(post.listener)));
    }
    int status = 0;
    while (worker > 0 && ::waitpid(worker, &status, 0) < 0 && errno == EINTR) {
    }
    if (worker > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      return 0;  // it had nothing to do any more
    }
    if (home.is_removed()) {
      return 0;
    }
    pause = Clock::now() - begun > kHealthy ? kShortest : std::min(2 * pause, kLongest);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

int run_egress(storage::Home& home, int ready) {
  settle();
  auto post = open_post(home);
  if (!post.ok() && post.error().code != Code::kConflict) {
    (void)write_all(ready, post.error().to_string());
    return 1;
  }
  (void)write_all(ready, "k");
  ::close(ready);
  return post.ok() ? supervise(home, post.value()) : 0;
}

}  // namespace carrel::egress
