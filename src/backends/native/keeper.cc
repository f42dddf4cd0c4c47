#include "backends/native/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "backends/native/keeper_client.h"
#include "backends/native/launch.h"
#include "backends/native/remains.h"
#include "base/files.h"
#include "policy/spec_json.h"
#include "storage/box.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::native {

namespace {

constexpr int kIdleMs = 3000;
constexpr int kReadyMs = 30'000;

std::string enforcement_json(const Enforcement& enforcement) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Enforcement::Row& row : enforcement.rows) {
    rows.push_back({{"name", row.name}, {"by", row.by}, {"note", row.note}});
  }
  return rows.dump();
}

std::string end_reason(int status) {
  if (WIFSIGNALED(status)) {
    return "its first process was killed by signal " + std::to_string(WTERMSIG(status));
  }
  switch (WEXITSTATUS(status)) {
    case 0:
      return "it was shut down";
    case 3:
      return "its lease ran out";
    default:
      return "its first process ended with status " + std::to_string(WEXITSTATUS(status));
  }
}

class Keeper {
 public:
  explicit Keeper(storage::Home& home) : home_(home) {}

  Status open() {
    CARREL_ASSIGN(run_, open_at(home_.directory(), "run", O_RDONLY | O_DIRECTORY));
    CARREL_ASSIGN(lock_, open_at(run_.get(), "keeper.lock", O_RDWR | O_CREAT, 0600));
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      return Error{Code::kConflict, 0, "another keeper is running", {}};
    }
    ::unlinkat(run_.get(), "keeper", 0);
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = "/proc/self/fd/" + std::to_string(run_.get()) + "/keeper";
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    mode_t before = ::umask(0177);
    int bound =
        ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::umask(before);
    if (bound != 0 || ::listen(listener_.get(), 64) != 0) {
      return system_error("bind the keeper's socket");
    }
    return {};
  }

  void adopt() {
    sweep_boxes(home_);
    for (const std::string& id : storage::box_ids(home_)) {
      auto record = storage::read_record(home_, id);
      if (!record.ok()) {
        continue;
      }
      UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, record.value().pid, 0)));
      if (process.valid() && storage::is_alive(record.value())) {
        boxes_.push_back({id, record.value().cgroup_parent, 0, std::move(process)});
      }
    }
  }

  void run() {
    for (;;) {
      std::vector<pollfd> waits;
      waits.push_back({listener_.get(), POLLIN, 0});
      for (const Box& box : boxes_) {
        waits.push_back({box.process.get(), POLLIN, 0});
      }
      int ready = ::poll(waits.data(), waits.size(), boxes_.empty() ? kIdleMs : -1);
      if (ready == 0 && leave()) {
        return;
      }
      for (std::size_t i = boxes_.size(); i > 0; --i) {
        if (waits[i].revents != 0) {
          end_box(i - 1);
        }
      }
      if (waits[0].revents != 0) {
        serve();
      }
    }
  }

 private:
  struct Box {
    std::string id;
    std::string cgroup_parent;
    pid_t child = 0;  // 0: made by an earlier keeper, so its exit status is not ours to have
    UniqueFd process;
  };

  // Goes, unless a client came at the last moment. The socket's name goes first: who connects
  // after that starts a new keeper.
  bool leave() {
    ::unlinkat(run_.get(), "keeper", 0);
    pollfd last{listener_.get(), POLLIN, 0};
    while (::poll(&last, 1, 0) == 1) {
      serve();
    }
    return true;
  }

  void end_box(std::size_t index) {
    Box box = std::move(boxes_[index]);
    boxes_.erase(boxes_.begin() + static_cast<std::ptrdiff_t>(index));
    std::string reason = "its first process ended";
    int status = 0;
    if (box.child != 0 && ::waitpid(box.child, &status, 0) == box.child) {
      reason = end_reason(status);
    }
    (void)bury(home_, box.id, box.cgroup_parent, reason);
  }

  void serve() {
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ucred peer{};
    socklen_t size = sizeof peer;
    if (!client.valid() ||
        ::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        peer.uid != ::geteuid()) {
      return;
    }
    auto answer = [&]() -> Result<std::string> {
      CARREL_ASSIGN(std::string text, receive_message(client.get()));
      CARREL_ASSIGN(CreateRequest request, decode_create(text));
      return create(request);
    }();
    (void)send_message(client.get(), encode_answer(answer));
  }

  Result<std::string> create(const CreateRequest& request) {
    const std::string id = storage::make_id();
    CARREL_ASSIGN(storage::State state, storage::State::open(home_));
    storage::SandboxRow row;
    row.id = id;
    row.name = request.name;
    row.state = "creating";
    row.spec = policy::spec_to_json(request.spec, policy::Values::kLeftOut);
    row.enforcement = "[]";
    row.created_ms = storage::wall_clock_ms();
    CARREL_TRY(state.add(row));
    auto made = make(id, request, state);
    if (!made.ok()) {
      (void)bury(home_, id, request.spec.cgroup_parent, made.error().to_string());
      (void)state.forget(id);
      return made.error();
    }
    return id;
  }

  Status make(const std::string& id, const CreateRequest& request, storage::State& state) {
    CARREL_ASSIGN(HostSetup host, look_at_setup(home_, request.spec));
    LaunchRequest job;
    job.id = id;
    job.spec = request.spec;
    job.lifetime = Lifetime::kLongLived;
    job.lease_ms = request.lease_ms;
    CARREL_ASSIGN(job.listener, storage::bind_socket(home_, id));
    // Until the record is there, this lock says that somebody is at work on it.
    CARREL_ASSIGN(UniqueFd directory, open_at(home_.boxes(), id, O_RDONLY | O_DIRECTORY));
    ::flock(directory.get(), LOCK_EX);
    CARREL_ASSIGN(Launched launched, launch(home_, host, std::move(job)));
    Status stored = store(launched, request, state);
    if (!stored.ok()) {
      ::syscall(SYS_pidfd_send_signal, launched.pidfd.get(), SIGKILL, nullptr, 0);
      ::waitpid(launched.pid, nullptr, 0);
      return stored;
    }
    launched.groups.release();
    boxes_.push_back(
        {id, request.spec.cgroup_parent, launched.pid, std::move(launched.pidfd)});
    return {};
  }

  // Waits until the sandbox is built, writes down that it exists, and only then lets go of it.
  Status store(Launched& launched, const CreateRequest& request, storage::State& state) {
    CARREL_ASSIGN(sandbox::GuestFrame frame, launched.stream.wait(kReadyMs));
    if (frame.type != protocol::FrameType::kReady) {
      return boot_error(frame.payload);
    }
    storage::BoxRecord record;
    record.id = launched.id;
    record.name = request.name;
    record.pid = launched.pid;
    record.start_time = storage::start_time_of(launched.pid);
    record.boot_id = storage::boot_id();
    record.timeout_ms = request.spec.limits.timeout.count();
    record.workdir = request.spec.workdir;
    record.cgroup_parent = request.spec.cgroup_parent;
    CARREL_TRY(state.set_running(launched.id, enforcement_json(launched.enforcement)));
    CARREL_TRY(storage::write_record(home_, record));
    storage::add_event(home_,
                       storage::start_event(launched.id, request.spec.image, "/workspace"));
    return launched.stream.send(0, protocol::FrameType::kDetach);
  }

  static Error boot_error(const std::string& payload) {
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
    int reason = static_cast<int>(reader.u32() & 0xfff);
    std::string text(reader.text(1024));
    return Error{Code::kUnsupported, reason, "Failed to create sandbox: cannot " + text,
                 "run 'carrel doctor'"};
  }

  storage::Home& home_;
  UniqueFd run_;
  UniqueFd lock_;
  UniqueFd listener_;
  std::vector<Box> boxes_;
};

}  // namespace

int run_keeper(storage::Home& home, int ready) {
  Keeper keeper(home);
  Status opened = keeper.open();
  if (!opened.ok() && opened.error().code != Code::kConflict) {
    (void)write_all(ready, opened.error().to_string());
    return 1;
  }
  (void)write_all(ready, "k");
  ::close(ready);
  if (!opened.ok()) {
    return 0;
  }
  keeper.adopt();
  keeper.run();
  return 0;
}

}  // namespace carrel::native
