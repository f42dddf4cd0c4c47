#include "server/daemon.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <thread>
#include <utility>

#include "base/files.h"
#include "http/acceptor.h"
#include "http/listener.h"
#include "manager/self.h"
#include "manager/walls.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/service.h"
#include "storage/background.h"

namespace carrel::server {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStopPatience = 5s;
constexpr std::chrono::milliseconds kTidyEvery = 10s;
constexpr std::chrono::milliseconds kRestEvery = 1s;
constexpr std::size_t kLargestTokenFile = 1U << 20;

int g_wake = -1;                          // NOLINT: a handler has nothing else
volatile std::sig_atomic_t g_stop = 0;    // NOLINT
volatile std::sig_atomic_t g_reload = 0;  // NOLINT

void wake() {
  const std::uint64_t one = 1;
  (void)!::write(g_wake, &one, sizeof one);
}

void on_signal(int number) {
  const int before = errno;
  if (number == SIGHUP) {
    g_reload = 1;
  } else if (number != SIGPIPE) {
    g_stop = 1;
  }
  wake();
  errno = before;
}

// Handlers, and nothing blocked or ignored: what is started from here begins with neither.
Status take_signals() {
  g_wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (g_wake < 0) {
    return system_error("make an event descriptor");
  }
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
    if (::sigaction(number, &action, nullptr) != 0) {
      return system_error("take signals");
    }
  }
  return {};
}

Result<std::vector<http::Listener>> listen_at(const std::string& where) {
  if (where.starts_with("unix:")) {
    CARREL_ASSIGN(http::Listener listener, http::listen_on_path(where.substr(5)));
    std::vector<http::Listener> one;
    one.push_back(std::move(listener));
    return one;
  }
  const std::size_t colon = where.rfind(':');
  if (!where.starts_with("tcp:") || colon <= 4) {
    return Error{Code::kInvalid, 0, "cannot listen on '" + where + "'",
                 "unix:PATH or tcp:HOST:PORT"};
  }
  std::string host = where.substr(4, colon - 4);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  const std::string port = where.substr(colon + 1);
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoul(port) > 65535) {
    return Error{Code::kInvalid, 0, "'" + port + "' is no port", {}};
  }
  return http::listen_on_host(host, static_cast<std::uint16_t>(std::stoul(port)));
}

Result<std::vector<http::Listener>> listen(const storage::Home& home,
                                           const DaemonOptions& options) {
  CARREL_ASSIGN(std::vector<http::Listener> listeners, http::inherited_listeners());
  std::vector<std::string> places = options.listen;
  if (places.empty() && listeners.empty()) {
    places.push_back("unix:" + home.path() + "/run/api.sock");
  }
  for (const std::string& place : places) {
    CARREL_ASSIGN(std::vector<http::Listener> more, listen_at(place));
    for (http::Listener& listener : more) {
      listeners.push_back(std::move(listener));
    }
  }
  return listeners;
}

Result<std::vector<Access::Token>> read_tokens(const std::string& path) {
  if (path.empty()) {
    return std::vector<Access::Token>();
  }
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_RDONLY));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) {
    return system_error("look at '" + path + "'");
  }
  if ((info.st_mode & 022) != 0 || (info.st_uid != ::geteuid() && info.st_uid != 0)) {
    return Error{Code::kDenied, 0, "others can write to the token file '" + path + "'",
                 "chmod go-w it"};
  }
  CARREL_ASSIGN(const std::string text, read_all(file.get(), kLargestTokenFile));
  return Access::parse_tokens(text, path);
}

// Descriptors for as many connections as there may be, each with one to a sandbox.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65536);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

// Of every thread that says nothing else: musl's own would be 128 KiB.
void set_stack_size() {
  constexpr std::size_t kStack = 512U << 10;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStack);
  (void)::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
}

// A small host has no processors and no memory for what nobody may need.
std::size_t usual_warm() {
  constexpr long kProcessors = 4;
  constexpr long kMemory = 8L << 30;
  constexpr std::size_t kUsual = 2;
  const bool large = ::sysconf(_SC_NPROCESSORS_ONLN) >= kProcessors &&
                     ::sysconf(_SC_PHYS_PAGES) >= kMemory / ::sysconf(_SC_PAGESIZE);
  return large ? kUsual : 0;
}

class Daemon {
 public:
  explicit Daemon(const DaemonOptions& options) : options_(options) {}

  Status run() {
    CARREL_ASSIGN(storage::Home home, storage::Home::open());
    auto lock = storage::lock_background(home, "serve");
    if (!lock.ok()) {
      return lock.error().code == Code::kConflict
                 ? Error{Code::kConflict, 0, "a daemon of this home is running already", {}}
                 : lock.error();
    }
    CARREL_ASSIGN(std::vector<Access::Token> tokens, read_tokens(options_.token_file));
    CARREL_TRY(Webhooks::check(options_.webhook));
    if (!options_.otlp.empty()) {
      CARREL_TRY(Traces::parse(options_.otlp));
    }
    CARREL_TRY(take_identity());
    // First: whoever sees that it listens may end it, and its sockets go with it.
    CARREL_TRY(take_signals());
    CARREL_ASSIGN(listeners_, listen(home, options_));
    for (http::Listener& listener : listeners_) {
      listener.encrypted =
          listener.kind == http::Listener::Kind::kTcp && !options_.certificate_file.empty();
      if (listener.kind == http::Listener::Kind::kTcp && service_.tcp_port == 0) {
        service_.tcp_port = listener.port;
      }
      if (listener.kind == http::Listener::Kind::kTcp && tokens.empty()) {
        return Error{Code::kDenied, 0, "TCP without tokens would let everybody in",
                     "'carrel serve --new-token NAME --token-file FILE' makes one"};
      }
    }
    service_.access.set_tokens(std::move(tokens));
    for (const std::string& name : options_.hosts) {
      service_.access.add_host(name);
    }
    manager::ManagerOptions limits;
    limits.most_sandboxes = options_.most_sandboxes;
    limits.finish_restore = manager::finish_restore_by_self;
    limits.reserve = options_.reserve;
    limits.warm = options_.warm.value_or(usual_warm());
    limits.likely = options_.create_defaults;
    // One client leaves room for others.
    service_.requests.set_most(std::max<std::size_t>(1, options_.most_connections / 2));
    CARREL_ASSIGN(service_.manager, manager::Manager::open(std::move(home), std::move(limits)));
    service_.create_defaults = options_.create_defaults;
    service_.run_defaults = options_.run_defaults;
    service_.one_shots = std::make_unique<native::OneShots>(service_.manager->home(),
                                                            manager::find_walls, &service_.nursery);
    service_.webhooks = std::make_unique<Webhooks>(service_.manager->home(), options_.webhook);
    service_.traces = std::make_unique<Traces>(options_.otlp);
    service_.alerts =
        std::make_unique<Alerts>(service_.manager->home(), service_.counters.refused_at_door);
    raise_file_limit();
    set_stack_size();
    return serve();
  }

 private:
  Status serve() {
    http::Acceptor acceptor(listeners_,
                            [this](UniqueFd& connection, const http::Listener& listener) {
                              serve_connection(service_, connection, listener);
                            },
                            {.most = options_.most_connections});
    service_.manager->tidy();
    for (const http::Listener& listener : listeners_) {
      log_line({{"event", "listening"}, {"at", listener.name}, {"tls", listener.encrypted}});
    }
    notify("READY=1");
    std::thread tidier([this] { tidy_now_and_then(); });
    std::thread teller([this] { service_.webhooks->run(service_.stopping); });
    std::thread tracer([this] { service_.traces->run(service_.stopping); });
    std::thread warmer([this] { service_.manager->warm().run(service_.stopping); });
    std::thread watcher([this] { service_.alerts->run(service_.stopping); });
    Status served;
    while (served.ok() && g_stop == 0 && !is_idle(acceptor)) {
      served = acceptor.accept_some(g_wake, 1000ms);
      reload_if_asked();
      notify_watchdog();
    }
    notify("STOPPING=1");
    service_.stopping = true;
    for (http::Listener& listener : listeners_) {
      listener.socket.reset();
      if (listener.kind == http::Listener::Kind::kUnix && !listener.inherited) {
        ::unlink(listener.name.c_str());
      }
    }
    const bool left = acceptor.await_all(kStopPatience);
    log_line({{"event", "stopped"}, {"connections", acceptor.open()}});
    tidier.join();
    teller.join();
    tracer.join();
    warmer.join();
    watcher.join();
    if (!left) {
      // Who is still at it is cut off; commands go on in their sandboxes.
      ::_exit(served.ok() ? 0 : 1);
    }
    return served;
  }

  // As the files are now.
  Status take_identity() {
    if (options_.certificate_file.empty() && options_.key_file.empty()) {
      return {};
    }
    if (options_.certificate_file.empty() || options_.key_file.empty()) {
      return Error{Code::kInvalid, 0, "TLS needs a certificate and its key",
                   "--tls-cert FILE --tls-key FILE"};
    }
    CARREL_ASSIGN(http::TlsIdentity identity,
                  http::TlsIdentity::of_files(options_.certificate_file, options_.key_file));
    service_.identity.set(std::move(identity));
    return {};
  }

  [[nodiscard]] bool is_idle(const http::Acceptor& acceptor) const {
    return options_.idle_exit.has_value() &&
           Clock::now() - acceptor.idle_since() >= *options_.idle_exit;
  }

  void reload_if_asked() {
    std::uint64_t count = 0;
    (void)!::read(g_wake, &count, sizeof count);
    if (g_reload == 0) {
      return;
    }
    g_reload = 0;
    auto tokens = read_tokens(options_.token_file);
    const Status identity = take_identity();  // what is wrong with the new one leaves the old one
    const Error* const wrong = !tokens.ok()     ? &tokens.error()
                               : !identity.ok() ? &identity.error()
                                                : nullptr;
    std::size_t cut_off = 0;
    if (tokens.ok()) {
      service_.access.set_tokens(std::move(tokens.value()));
      cut_off = service_.admitted.cut_off(service_.access);
    }
    log_line({{"event", "reload"},
              {"error", wrong == nullptr ? std::string() : wrong->to_string()},
              {"cut_off", cut_off}});
  }

  void tidy_now_and_then() {
    Clock::time_point next = Clock::now() + kTidyEvery;
    Clock::time_point rest = Clock::now();
    while (!service_.stopping) {
      std::this_thread::sleep_for(200ms);
      if (Clock::now() >= rest) {
        service_.manager->rest_idle();
        rest = Clock::now() + kRestEvery;
      }
      if (Clock::now() >= next) {
        service_.manager->tidy();
        next = Clock::now() + kTidyEvery;
      }
    }
  }

  const DaemonOptions& options_;
  std::vector<http::Listener> listeners_;
  Service service_;
};

}  // namespace

Status run_daemon(const DaemonOptions& options) { return Daemon(options).run(); }

}  // namespace carrel::server
