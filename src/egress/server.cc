#include "egress/server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/files.h"
#include "base/unix_socket.h"
#include "egress/guest_sockets.h"
#include "egress/io.h"
#include "egress/lockdown.h"
#include "egress/registration.h"
#include "egress/room.h"
#include "storage/background.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kIdle{10};
constexpr std::chrono::seconds kRequestPatience{10};
constexpr std::size_t kLargestRequest = 4096;
constexpr rlim_t kDescriptors = 65'536;

class Server {
 public:
  explicit Server(storage::Home& home) : home_(&home) {}

  Status open() {
    CARREL_ASSIGN(lock_, storage::lock_background(*home_, kProcess));
    CARREL_ASSIGN(service_.log, DecisionLog::open(home_->directory()));
    service_.upstream.open(service_.log.directory());
    CARREL_TRY(make_registrations(*home_));
    CARREL_ASSIGN(const UniqueFd run, open_at(home_->directory(), "run", O_PATH | O_DIRECTORY));
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_un address = socket_address(run.get(), kProcess);
    (void)::unlinkat(home_->directory(), "run/egress", 0);
    if (!socket.valid() ||
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(socket.get(), 64) != 0) {
      return system_error("listen for the sandboxes' registrations");
    }
    listener_ = std::make_unique<Watched>(service_.loop, std::move(socket));
    return lock_down(*home_);
  }

  void run() {
    spawn(adopt());
    spawn(accept());
    spawn(leave_when_idle());
    (void)service_.loop.run();
    (void)::unlinkat(home_->directory(), "run/egress", 0);
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
          ::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (client.valid()) {
        spawn(serve(std::move(client)));
      } else if (errno == EAGAIN) {
        co_await listener_->readable();
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
      const std::string answer = co_await answer_to(text.substr(0, end));
      co_await write_whole(client, bytes_of(answer), deadline);
    }
    --busy_;
    last_used_ = Clock::now();
  }

  Task<std::string> answer_to(std::string text) {
    const auto request = nlohmann::json::parse(text, nullptr, false);
    const std::string operation = request.is_object() ? request.value("op", "") : "";
    const std::string id = request.is_object() ? request.value("id", "") : "";
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
    rooms_[id] = room;
    room->open(std::move(sockets.value()));
    spawn(watch(room, guest, registration->kind));
    co_return Status();
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
  UniqueFd lock_;
  Service service_;
  std::unique_ptr<Watched> listener_;
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

}  // namespace

int run_egress(storage::Home& home, int ready) {
  settle();
  Server server(home);
  Status opened = server.open();
  if (!opened.ok() && opened.error().code != Code::kConflict) {
    (void)write_all(ready, opened.error().to_string());
    return 1;
  }
  (void)write_all(ready, "k");
  ::close(ready);
  if (opened.ok()) {
    server.run();
  }
  return 0;
}

}  // namespace carrel::egress
