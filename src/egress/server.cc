#include "egress/server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "base/files.h"
#include "base/unix_socket.h"
#include "egress/guest_sockets.h"
#include "egress/io.h"
#include "egress/lockdown.h"
#include "egress/registration.h"
#include "egress/room.h"
#include "egress/trust.h"
#include "storage/background.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kIdle{10};
constexpr std::chrono::seconds kRequestPatience{10};
constexpr std::size_t kLargestRequest = 4096;
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

// A text of the request; empty: it has none.
std::string field(const nlohmann::json& request, const char* name) {
  const bool has = request.is_object() && request.contains(name) && request[name].is_string();
  return has ? request[name].get<std::string>() : std::string();
}

class Server {
 public:
  Server(storage::Home& home, UniqueFd listener)
      : home_(&home), listener_(service_.loop, std::move(listener)) {}

  Status open() {
    CARREL_ASSIGN(service_.log, DecisionLog::open(home_->directory()));
    service_.upstream.open(service_.log.directory());
    CARREL_TRY(make_registrations(*home_));
    CARREL_ASSIGN(service_.secrets, storage::Secrets::open(*home_));
    return lock_down(*home_);
  }

  Status run() {
    spawn(adopt());
    spawn(accept());
    spawn(leave_when_idle());
    CARREL_TRY(service_.loop.run());
    (void)::unlinkat(home_->directory(), "run/egress", 0);
    return {};
  }

 private:
  // Those that an earlier process served.
  Task<void> adopt() {
    const std::vector<std::string> ids = registered_ids(*home_);
    for (const std::string& id : ids) {
      const Status attached = co_await attach(id);
      if (!attached.ok() && attached.error().code == Code::kGone) {
        remove_registration(*home_, id);
      }
    }
  }

  Task<void> accept() {
    for (;;) {
      UniqueFd client(
          ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
    const bool own =
        ::getsockopt(client.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        peer.uid == ::geteuid();
    std::string text;
    std::array<std::uint8_t, 1024> buffer;
    const Deadline deadline = in(kRequestPatience);
    while (own && text.find('\n') == std::string::npos && text.size() < kLargestRequest) {
      const auto n = co_await read_some(client, buffer, deadline);
      if (n <= 0) {
        break;
      }
      text.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(n));
    }
    if (const std::size_t end = text.find('\n'); end != std::string::npos) {
      std::string request = text.substr(0, end);
      const std::string answer = co_await answer_to(std::move(request));
      co_await write_whole(client, bytes_of(answer), deadline);
    }
    --busy_;
    last_used_ = Clock::now();
  }

  Task<std::string> answer_to(std::string text) {
    const auto request = nlohmann::json::parse(text, nullptr, false);
    const std::string operation = field(request, "op");
    const std::string id = field(request, "id");
    nlohmann::ordered_json answer = nlohmann::ordered_json::object();
    Status status;
    if (operation == "attach") {
      status = co_await attach(id);
    } else if (operation == "forget") {
      forget(id);
    } else if (operation == "usage") {
      if (const auto found = rooms_.find(id); found != rooms_.end()) {
        const Room::Usage& usage = found->second->usage();
        answer = {{"bytes_out", usage.bytes_out},
                  {"bytes_in", usage.bytes_in},
                  {"connections", usage.connections},
                  {"live", found->second->live()},
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

  // Serves a sandbox as its registration says; one that is served already gets its new policy.
  Task<Status> attach(std::string id) {
    // A guest gives its sockets once: whoever comes second finds them taken.
    while (attaching_.contains(id)) {
      co_await service_.loop.sleep(in(std::chrono::milliseconds(1)));
    }
    attaching_.insert(id);
    const Status attached = co_await attach_alone(id);
    attaching_.erase(id);
    co_return attached;
  }

  Task<Status> attach_alone(std::string id) {
    auto registration = read_registration(*home_, id);
    if (!registration.ok()) {
      co_return registration.error();
    }
    if (const auto found = rooms_.find(id); found != rooms_.end() && !found->second->closed()) {
      found->second->set_policy(std::move(registration->policy));
      co_return Status();
    }
    auto connection = connect_guest(*home_, registration.value());
    if (!connection.ok()) {
      co_return connection.error();
    }
    ::fcntl(connection->get(), F_SETFL, O_NONBLOCK);
    auto guest = std::make_shared<Watched>(service_.loop, std::move(connection.value()));
    Result<RoomSockets> sockets = co_await take_sockets(*guest, id);
    if (!sockets.ok()) {
      co_return sockets.error();
    }
    auto directory = open_registration(*home_, id);
    if (!directory.ok()) {
      co_return directory.error();
    }
    auto names = SyntheticNames::open(directory->get());
    if (!names.ok()) {
      co_return names.error();
    }
    auto room = std::make_shared<Room>(service_, id, std::move(registration->policy),
                                       std::move(names.value()));
    if (has_trust(*home_, id)) {
      const Status trusted = give_authority(*room);
      if (!trusted.ok()) {
        co_return trusted;
      }
    }
    rooms_[id] = room;
    room->open(std::move(sockets.value()));
    spawn(watch(room, guest, registration->kind));
    co_return Status();
  }

  // The certificate is in its place before anybody is served.
  Status give_authority(Room& room) {
    CARREL_ASSIGN(std::unique_ptr<TlsAuthority> authority, TlsAuthority::make());
    CARREL_ASSIGN(const std::string certificate, authority->certificate());
    CARREL_TRY(write_trust(*home_, room.id(), certificate));
    room.set_authority(std::move(authority));
    return {};
  }

  // CRITICAL: a socket that is held keeps a network alive that nobody is in.
  Task<void> watch(std::shared_ptr<Room> room, std::shared_ptr<Watched> guest,
                   Registration::Kind kind) {
    std::array<std::uint8_t, 256> ignored;
    std::ptrdiff_t n = 1;
    while (n > 0) {
      n = co_await read_some(*guest, ignored);
    }
    room->close();
    if (const auto found = rooms_.find(room->id()); found != rooms_.end() && found->second == room) {
      rooms_.erase(found);
    }
    if (kind == Registration::Kind::kOneShot) {
      remove_registration(*home_, room->id());
    }
    last_used_ = Clock::now();
  }

  void forget(const std::string& id) {
    if (const auto found = rooms_.find(id); found != rooms_.end()) {
      const std::shared_ptr<Room> room = found->second;
      rooms_.erase(found);
      room->close();
    }
  }

  Task<void> leave_when_idle() {
    while (!rooms_.empty() || busy_ > 0 || Clock::now() - last_used_ < kIdle) {
      co_await service_.loop.sleep(in(std::chrono::seconds(1)));
    }
    service_.loop.stop();
  }

  storage::Home* home_;
  Service service_;
  Watched listener_;
  std::map<std::string, std::shared_ptr<Room>> rooms_;
  std::set<std::string> attaching_;
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
