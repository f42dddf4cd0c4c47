#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "verify/probes/probe.h"

// What stays when it should be gone, and what was there before: processes, time, secrets.
namespace carrel::probe {
namespace {

void ignore_signals() {
  for (int number = 1; number < NSIG; ++number) {
    ::signal(number, SIG_IGN);
  }
}

// A process of that name which nobody waits for. Executed again, so that the name is what the host
// sees as its command line.
void leave_process(char* name, void (*prepare)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() == 0) {
      prepare();
      const int null = ::open("/dev/null", O_RDWR);
      for (int stream = 0; stream < 3; ++stream) {
        ::dup2(null, stream);
      }
      char option[sizeof kStay];
      ::memcpy(option, kStay, sizeof kStay);
      std::array<char*, 3> words{name, option, nullptr};
      ::execv("/proc/self/exe", words.data());
    }
    ::_exit(0);
  }
  if (child > 0) {
    ::waitpid(child, nullptr, 0);
  }
}

std::size_t count_processes(const std::string& name) {
  std::size_t count = 0;
  for (const std::string& pid : names_in("/proc")) {
    const std::string words = read_some("/proc/" + pid + "/cmdline", 4096);
    if (words.compare(0, name.size() + 1, name.c_str(), name.size() + 1) == 0) {
      ++count;
    }
  }
  return count;
}

void pause_for(long milliseconds) {
  const struct timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  ::nanosleep(&time, nullptr);
}

// Arguments: a name, then "leave" and "look". What is left is for the host to find, or for a later
// sandbox.
void leave_daemons(Report& report, Arguments arguments) {
  if (arguments.empty()) {
    report.open("the probe was not told a name");
    return;
  }
  if (has_argument(arguments, "leave")) {
    leave_process(arguments[0], [] { ::setsid(); });
    leave_process(arguments[0], [] {
      ::setsid();
      ::setpgid(0, 0);
      ::signal(SIGHUP, SIG_IGN);
    });
    leave_process(arguments[0], [] {});
    pause_for(100);
    report.not_applicable("left " + std::to_string(count_processes(arguments[0])) + " processes");
    constexpr char kLeft[] = "left\n";
    if (::write(1, kLeft, sizeof kLeft - 1) > 0) {
      pause_for(500);  // for the host to see them
    }
  }
  if (has_argument(arguments, "look")) {
    const std::size_t found = count_processes(arguments[0]);
    report.expect("nothing of it is there (" + std::to_string(found) + ")", found == 0);
  }
}

// Argument: for how many seconds. Whoever gets that far was not ended by the time limit.
void outlast_the_limit(Report& report, Arguments arguments) {
  const int seconds = arguments.empty() ? 30 : ::atoi(arguments[0]);
  ignore_signals();
  const pid_t stopped = ::fork();
  if (stopped == 0) {
    ::setsid();
    ::alarm(static_cast<unsigned>(seconds) + 5);
    ::signal(SIGALRM, SIG_DFL);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  for (int i = 0; i < seconds * 10; ++i) {
    pause_for(100);
  }
  ::kill(stopped, SIGKILL);
  report.open("still there after " + std::to_string(seconds) + " seconds");
}

double now_of(clockid_t clock) {
  struct timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// Argument: how many thousandths of one core there may be. Four processes compute for a second.
void take_processor_time(Report& report, Arguments arguments) {
  const int allowed = arguments.empty() ? 1000 : ::atoi(arguments[0]);
  const double start = now_of(CLOCK_MONOTONIC);
  constexpr int kChildren = 4;
  for (int i = 0; i < kChildren; ++i) {
    if (::fork() == 0) {
      volatile unsigned sum = 0;
      while (now_of(CLOCK_MONOTONIC) < start + 1.0) {
        for (unsigned j = 0; j < 100000; ++j) {
          sum = sum + j;
        }
      }
      ::_exit(0);
    }
  }
  while (::wait(nullptr) > 0 || errno == EINTR) {
  }
  const double wall = now_of(CLOCK_MONOTONIC) - start;
  struct rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const double seconds = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  const int got = static_cast<int>(seconds / wall * 1000);
  report.expect(
      "used " + std::to_string(got) + " of " + std::to_string(allowed) + " thousandths of a core",
      got <= allowed * 3 / 2 + 50);
}

// The name of a variable that is in the environment of the host's program.
constexpr char kVariable[] = "CARREL_CANARY_TOKEN";

void look_for_secrets(Report& report, Arguments) {
  report.expect("the host's variable is not in the environment", ::getenv(kVariable) == nullptr);
  std::size_t looked = 0;
  for (const std::string& pid : names_in("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos && pid != "self") {
      continue;
    }
    for (const char* file : {"/environ", "/cmdline"}) {
      const std::string path = "/proc/" + pid + file;
      const std::string text = read_some(path, 1U << 20);
      looked += text.empty() ? 0U : 1U;
      if (text.find(std::string(kVariable) + "=") != std::string::npos) {
        report.open(path + " tells the host's variable");
      }
    }
  }
  report.held("looked at " + std::to_string(looked) + " files");
}

constexpr Probe kProbes[] = {
    {"G13_TheTimeLimitEndsEverything", outlast_the_limit},
    {"H01_NothingOutlivesItsSandbox", leave_daemons},
    {"K06_NoSecretOfTheHostIsSeen", look_for_secrets},
    {"R280_ProcessorTimeEnds", take_processor_time},
};

}  // namespace

void stay() {
  ignore_signals();
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(120);
  for (;;) {
    ::pause();
  }
}

std::span<const Probe> lasting_probes() { return kProbes; }

}  // namespace carrel::probe
