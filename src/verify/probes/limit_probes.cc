#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "verify/probes/probe.h"

// How much of everything that can be counted a sandbox may have.
namespace carrel::probe {
namespace {

void raise_limit(__rlimit_resource_t resource) {
  struct rlimit limit{};
  ::getrlimit(resource, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(resource, &limit);
}

// Takes until it is refused; reaching `enough` means that nothing limits it.
void take(Report& report, const std::string& what, int enough, long (*one)(int)) {
  int taken = 0;
  while (taken < enough && one(taken) >= 0) {
    ++taken;
  }
  const std::string reason = error_name(errno);
  report.expect(what + ": " + std::to_string(taken) + " and then " +
                    (taken == enough ? "still no end" : reason),
                taken < enough);
}

void fork_without_end(Report& report, Arguments) {
  constexpr std::size_t kEnough = 1000;  // a sandbox has 512 unless told otherwise
  std::vector<pid_t> children;
  int reason = 0;
  while (children.size() < kEnough) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    if (child < 0) {
      reason = errno;
      break;
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  report.expect(std::to_string(children.size()) + " children and then " + error_name(reason),
                children.size() < kEnough && reason == EAGAIN);
}

void take_descriptors(Report& report, Arguments) {
  raise_limit(RLIMIT_NOFILE);
  raise_limit(RLIMIT_MSGQUEUE);
  raise_limit(RLIMIT_SIGPENDING);
  constexpr int kEnough = 8000;
  const auto attempt = [&](const char* what, long (*one)(int)) {
    struct Job {
      Report* report;
      const char* what;
      long (*one)(int);
      int pipe[2];
    } job{&report, what, one, {-1, -1}};
    // In a child, so that the next kind starts with none.
    if (::pipe2(job.pipe, O_CLOEXEC) != 0) {
      return;
    }
    in_child(
        [](void* context) {
          Job& own = *static_cast<Job*>(context);
          Report inner;
          take(inner, own.what, kEnough, own.one);
          const char verdict = inner.is_open() ? 'o' : 'h';
          if (::write(own.pipe[1], &verdict, 1) != 1) {
            ::_exit(1);
          }
        },
        &job, 10);
    ::close(job.pipe[1]);
    char verdict = '?';
    const bool told = ::read(job.pipe[0], &verdict, 1) == 1;
    ::close(job.pipe[0]);
    report.expect(std::string(what) + " end", told && verdict == 'h');
  };
  attempt("files", [](int) -> long { return ::open("/dev/null", O_RDONLY); });
  attempt("event descriptors", [](int) -> long { return ::eventfd(0, 0); });
  attempt("epoll descriptors", [](int) -> long { return ::epoll_create1(0); });
  attempt("timer descriptors", [](int) -> long { return ::timerfd_create(CLOCK_MONOTONIC, 0); });
  attempt("inotify descriptors", [](int) -> long { return ::inotify_init1(0); });
  attempt("POSIX timers", [](int) -> long {
    timer_t timer{};
    struct sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR1;
    return ::timer_create(CLOCK_MONOTONIC, &event, &timer);
  });
  attempt("message queues", [](int i) -> long {
    const std::string name = "/probe" + std::to_string(i);
    return ::mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, nullptr);
  });
}

void queue_signals(Report& report, Arguments) {
  raise_limit(RLIMIT_SIGPENDING);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  take(report, "queued signals", 8000, [](int) -> long {
    union sigval value{};
    return ::sigqueue(::getpid(), SIGRTMIN, value);
  });
}

constexpr Probe kProbes[] = {
    {"G01_ForksEnd", fork_without_end},
    {"G07_CountedThingsEnd", take_descriptors},
    {"G16_QueuedSignalsEnd", queue_signals},
};

}  // namespace

std::span<const Probe> limit_probes() { return kProbes; }

}  // namespace carrel::probe
