#include "backends/native/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <list>
#include <optional>
#include <vector>

#include "backends/native/egress_watch.h"
#include "backends/native/keeper_client.h"
#include "backends/native/keeper_visit.h"
#include "backends/native/kept_watches.h"
#include "backends/native/nursery.h"
#include "backends/native/places.h"
#include "backends/native/readiness.h"
#include "backends/native/remains.h"
#include "backends/native/scope.h"
#include "backends/native/warm_pool.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "egress/registration.h"
#include "policy/settings.h"
#include "storage/box.h"
#include "storage/open_state.h"

namespace carrel::native {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kIdleMs = 3000;
constexpr int kBuryAgainMs = 250;
constexpr int kNurseryStartMs = 100;   // after everything else was done
constexpr int kNurseryAgainMs = 5000;  // after one that ended
constexpr int kNurseryCheckMs = 10'000;
constexpr std::size_t kMostVisits = 256;

// A sandbox that outlives the command that made it is watched and ended through a descriptor of its
// first process; by its number alone another process could be hit.
Status check_process_descriptors() {
  auto lacks = [](const char* call) {
    return Error{Code::kUnsupported, errno,
                 std::string("long-lived sandboxes need the system call ") + call,
                 "run 'carrel doctor'"};
  };
  UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self.valid()) {
    return lacks("pidfd_open (Linux 5.3)");
  }
  if (::syscall(SYS_pidfd_send_signal, self.get(), 0, nullptr, 0) != 0) {
    return lacks("pidfd_send_signal (Linux 5.1)");
  }
  return {};
}

class Keeper {
 public:
  Keeper(storage::Home& home, sandbox::FindWalls find_walls)
      : home_(home), find_walls_(find_walls), rows_(home), warm_(home, scope_), egress_(home) {}

  Status open() {
    CARREL_TRY(check_process_descriptors());
    CARREL_ASSIGN(run_, open_at(home_.directory(), "run", O_RDONLY | O_DIRECTORY));
    CARREL_ASSIGN(lock_, lock_keeper(home_));
    return listen();
  }

  void adopt() {
    sweep_boxes(home_, Sweeper::kKeeper);
    sweep_walls(home_, find_walls_);
    for (const std::string& id : storage::box_ids(home_)) {
      auto record = storage::read_record(home_, id);
      if (!record.ok()) {
        continue;
      }
      UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, record.value().pid, 0)));
      if (process.valid() && storage::is_alive(record.value())) {
        keep(id, 0, std::move(process));
      }
    }
    if (!boxes_.empty()) {
      settle_in();
    }
  }

  void run() {
    for (;;) {
      std::vector<pollfd> waits;
      waits.push_back({visits_.size() < kMostVisits ? listener_.get() : -1, POLLIN, 0});
      waits.push_back({nursery_.has_value() ? nursery_->pidfd() : -1, POLLIN, 0});
      waits.push_back({warm_.mounts_fd(), POLLPRI, 0});
      for (const Box& box : boxes_) {
        waits.push_back({box.process.get(), POLLIN, 0});
      }
      for (const Visit& visit : visits_) {
        waits.push_back({visit.client_fd(), POLLIN, 0});
        waits.push_back({visit.guest_fd(), POLLIN, 0});
      }
      for (const WarmBox& box : warm_.boxes()) {
        waits.push_back({box.pidfd(), POLLIN, 0});
      }
      const bool quiet = ::poll(waits.data(), waits.size(), patience()) == 0;
      if (quiet && !warm_.is_wanted()) {
        rows_.close();
      }
      if (quiet && home_.is_removed()) {
        end_all();
        return;
      }
      if (!quiet) {
        last_event_ = Clock::now();
      } else if (is_idle() && !one_shots_come(run_.get()) && leave()) {
        return;
      } else if (until_nursery() <= milliseconds(0)) {
        tend_nursery();
        last_event_ = Clock::now();
      }
      if (has_networks()) {
        egress_.look();
      }
      if (waits[1].revents != 0) {
        nursery_.reset();
        nursery_failed_ = true;
      }
      if (waits[2].revents != 0) {
        warm_.drop_all();
      }
      auto wait = waits.begin() + 3;
      for (Box& box : boxes_) {
        note_end(box, *wait++);
      }
      for (Visit& visit : visits_) {
        serve(visit, wait[0].revents, wait[1].revents);
        wait += 2;
      }
      visits_.remove_if([](const Visit& visit) { return visit.over(); });
      bury_ended();
      tend_warm();
      if (waits[0].revents != 0) {
        welcome();
      }
    }
  }

 private:
  struct Box {
    std::string id;
    pid_t child = 0;   // 0: made by an earlier keeper, so its exit status is not ours to have
    UniqueFd process;  // invalid once it has ended
    Ending ending;     // then
    bool networked = false;
    bool lent = false;  // a warm one that somebody else has, and has not taken yet
  };

  void keep(const std::string& id, pid_t child, UniqueFd process) {
    Box& box = boxes_.emplace_back();
    box.id = id;
    box.child = child;
    box.process = std::move(process);
    box.networked = egress::is_registered(home_, id);
  }

  // Whoever has it ends it, or has it ended by going away.
  void keep_lent(WarmBox box, Visit& visit) {
    const std::string id = box.id();
    auto lent = box.lend();
    if (!lent.ok()) {
      return;
    }
    Box& kept = boxes_.emplace_back();
    kept.id = id;
    kept.child = lent->offer.pid;
    kept.process = std::move(lent->process);
    kept.lent = true;
    visit.lend(lent->offer);
  }

  void note_taken(const std::string& id) {
    for (Box& box : boxes_) {
      if (box.id == id && box.lent) {
        box.lent = false;
        box.networked = egress::is_registered(home_, id);
        count_lent();
        warm_.note_lack();
      }
    }
  }

  // Whoever had them is gone. What he has finished is there to stay, the others end by themselves.
  void forget_borrower() {
    for (const Box& box : boxes_) {
      if (box.lent && storage::read_record(home_, box.id).ok()) {
        note_taken(box.id);
      }
    }
  }

  void count_lent() {
    warm_.note_lent(
        static_cast<std::size_t>(std::count_if(boxes_.begin(), boxes_.end(), [](const Box& box) {
          return box.lent && box.process.valid();
        })));
  }

  [[nodiscard]] bool has_networks() const {
    return std::any_of(boxes_.begin(), boxes_.end(), [](const Box& box) { return box.networked; });
  }

  // What it makes lives in a scope of its own, where it can have one: not in the session of
  // whoever started it, and with limits. One that only has a nursery stays with those whom it
  // serves.
  void settle_in() {
    if (!settled_) {
      settled_ = true;
      scope_ = enter_scope(home_, ScopeUse::kKeeper);
      note_keepers_scope(home_, scope_.group);
    }
  }

  [[nodiscard]] bool is_idle() const { return boxes_.empty() && visits_.empty(); }

  // Somebody waits for a sandbox.
  [[nodiscard]] bool is_making() const {
    return std::any_of(visits_.begin(), visits_.end(),
                       [](const Visit& visit) { return visit.waits(); });
  }

  // As many as somebody who is there wants; who is being served has the processors first.
  void tend_warm() {
    const auto borrower = std::find_if(visits_.begin(), visits_.end(),
                                       [](const Visit& visit) { return visit.borrows(); });
    const bool lends = borrower != visits_.end();
    if (!lends) {
      forget_borrower();
    }
    std::size_t wanted = 0;
    for (const Visit& visit : visits_) {
      wanted = std::max(wanted, visit.wanted_warm());
    }
    warm_.want(wanted);
    if (wanted == 0) {
      return;
    }
    warm_.drop_outdated();
    if (!is_making()) {
      warm_.refill(lends ? WarmPool::Use::kLoan : WarmPool::Use::kOwn);
      if (!lends) {
        rows_.open();  // for the next one
      }
    }
    if (lends) {
      while (!warm_.boxes().empty()) {
        keep_lent(warm_.take_for_loan(), *borrower);
      }
      count_lent();
      return;
    }
    for (Visit& visit : visits_) {
      if (visit.holds()) {
        visit.tell_warm();
      }
    }
  }

  // The name is free for whoever has the lock.
  Status listen() {
    ::unlinkat(run_.get(), "keeper", 0);
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_un address = socket_address(run_.get(), "keeper");
    if (!listener_.valid() ||
        ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 128) != 0) {
      return system_error("bind the keeper's socket");
    }
    return {};
  }

  [[nodiscard]] bool wants_nursery() const {
    return std::any_of(boxes_.begin(), boxes_.end(), [](const Box& box) { return !box.lent; }) ||
           one_shots_come(run_.get());
  }

  // How long nothing else has to happen before the nursery is looked at.
  [[nodiscard]] milliseconds until_nursery() const {
    const milliseconds quiet(nursery_.has_value() ? kNurseryCheckMs
                             : nursery_failed_    ? kNurseryAgainMs
                                                  : kNurseryStartMs);
    return std::chrono::ceil<milliseconds>(last_event_ + quiet - Clock::now());
  }

  [[nodiscard]] int patience() const {
    int least = kIdleMs;
    auto take = [&](int candidate) { least = std::min(least, candidate); };
    if (wants_nursery() || is_making()) {
      least = static_cast<int>(std::max(until_nursery(), milliseconds(0)).count());
    }
    if (is_idle()) {
      return std::min(least, kIdleMs);
    }
    if (const auto left = warm_.time_left(); left.has_value() && !is_making()) {
      take(*left);
    }
    const auto ended = [](const Box& box) { return !box.process.valid(); };
    if (std::any_of(boxes_.begin(), boxes_.end(), ended)) {
      take(kBuryAgainMs);
    }
    if (has_networks()) {
      take(egress_.time_left());
    }
    for (const Visit& visit : visits_) {
      if (auto left = visit.time_left(); left.has_value()) {
        take(*left);
      }
    }
    return least;
  }

  // Goes, unless a client came at the last moment. The socket's name goes first: who comes after
  // that starts a new keeper, and who was between the two sees the connection close and comes
  // again.
  bool leave() {
    ::unlinkat(run_.get(), "keeper", 0);
    welcome();
    if (!visits_.empty() && listen().ok()) {
      return false;
    }
    nursery_.reset();
    unlink_nursery(run_.get());
    sweep_places(home_);
    note_keepers_scope(home_, {});
    return true;
  }

  // Nobody can reach them any more, and nobody but this can end them.
  void end_all() {
    nursery_.reset();
    warm_.drop_all();
    for (const Box& box : boxes_) {
      watches_.forget(box.id);
      end_without_home(home_, box.id, box.process);
      if (box.child != 0 && box.process.valid()) {
        (void)::waitpid(box.child, nullptr, WNOHANG);
      }
    }
  }

  // While there are sandboxes to keep or one-shots come, those of the same user find their first
  // processes here. What the host's files are is looked at again and again.
  void tend_nursery() {
    if (is_making() || !wants_nursery()) {
      return;
    }
    auto plan = plan_mounts(policy::default_spec(policy::Operation::kRun), look_at_host(),
                            Identity(), Lifetime::kOneShot);
    if (!plan.ok() || (nursery_.has_value() && nursery_->fits(plan.value()))) {
      return;
    }
    nursery_.reset();
    nursery_failed_ = true;
    auto listener = listen_for_nursery(run_.get());
    if (!listener.ok()) {
      return;
    }
    auto started = Nursery::start(plan.value(), std::move(listener.value()));
    if (started.ok()) {
      nursery_.emplace(std::move(started.value()));
      nursery_failed_ = false;
    }
  }

  void welcome() {
    while (visits_.size() < kMostVisits) {
      UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) {
        return;
      }
      ucred peer{};
      socklen_t size = sizeof peer;
      if (::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
          peer.uid == ::geteuid()) {
        settle_in();
        visits_.emplace_back(Visit::House{&home_, &rows_, &scope_, &warm_, &watches_, find_walls_},
                             std::move(client));
      }
    }
  }

  void serve(Visit& visit, short client_events, short guest_events) {
    auto made = visit.go_on(client_events, guest_events);
    if (made.has_value()) {
      keep(made->id, made->child, std::move(made->process));
    }
    for (const std::string& id : visit.taken()) {
      note_taken(id);
    }
  }

  void note_end(Box& box, const pollfd& wait) {
    if (!box.process.valid() || wait.fd != box.process.get() || wait.revents == 0) {
      return;
    }
    box.ending = {"its first process ended", Ending::How::kDied};
    int status = 0;
    if (box.child != 0 && ::waitpid(box.child, &status, 0) == box.child) {
      box.ending = ending_of(status);
    }
    if (box.lent && !storage::read_record(home_, box.id).ok()) {
      box.ending = {"it was never finished"};
    }
    box.process.reset();
  }

  // A box that somebody else is at is looked at again later: it may be stopped, or die over it.
  void bury_ended() {
    std::erase_if(boxes_, [&](const Box& box) {
      if (box.process.valid()) {
        return false;
      }
      watches_.forget(box.id);
      Status buried = bury(home_, box.id, box.ending, 0);
      return buried.ok() || buried.error().code != Code::kConflict;
    });
  }

  storage::Home& home_;
  sandbox::FindWalls find_walls_;
  UniqueFd run_;
  UniqueFd lock_;
  UniqueFd listener_;
  storage::OpenState rows_;
  OwnScope scope_;
  bool settled_ = false;  // in that scope, if it could be had
  WarmPool warm_;
  KeptWatches watches_;
  std::optional<Nursery> nursery_;
  bool nursery_failed_ = false;
  Clock::time_point last_event_ = Clock::now();
  EgressWatch egress_;
  std::vector<Box> boxes_;
  std::list<Visit> visits_;
};

// What the caller's terminal, limits and habits left in this process.
void settle() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGCHLD, SIG_DFL);
  for (int ignored : {SIGHUP, SIGPIPE, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU}) {
    ::signal(ignored, SIG_IGN);
  }
  ::umask(077);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

}  // namespace

int run_keeper(storage::Home& home, int ready, sandbox::FindWalls find_walls) {
  settle();
  Keeper keeper(home, find_walls);
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
