#include "backends/docker/working.h"

#include <sys/stat.h>

#include <cstdlib>

namespace carrel::docker {

namespace {

// What an engine uses in a while to answer questions of ours, and to look around while it has
// nothing to do: its containerd alone takes a hundredth of a processor.
constexpr std::uint64_t kLittle = 20'000'000;
constexpr std::chrono::milliseconds kWhile{600};
constexpr std::uint64_t kTick = 10'000'000;

struct Use {
  std::uint64_t nanoseconds = 0;  // of a processor
  bool waits = false;             // for a disk
};

// On a busy host everybody who wakes up for a moment waits for a processor, so that this counts
// only where the kernel does not tell how long each task had one.
Use use_of(pid_t process) {
  Use use;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const std::string& number : numbers_in(tasks)) {
    const TaskState task = parse_task(read_proc(tasks + "/" + number + "/stat"));
    const std::string times = read_proc(tasks + "/" + number + "/schedstat");
    use.nanoseconds +=
        times.empty() ? task.ticks * kTick : std::strtoull(times.c_str(), nullptr, 10);
    use.waits = use.waits || task.state == 'D' || (times.empty() && task.state == 'R');
  }
  return use;
}

}  // namespace

bool Working::counts(const HostProcesses& all, pid_t process) const {
  const HostProcess& found = all.at(process);
  const auto above = all.find(found.parent);
  const bool builds = builds_sandbox(found, asked_);
  if (!works_for_engine(found.name) && !builds &&
      (above == all.end() || !starts_helpers(above->second.name))) {
    return false;
  }
  const Employer employer = employer_of(all, process);
  const bool ours =
      employer.kind == Employer::Kind::kSome ||
      (employer.kind == Employer::Kind::kKnown && (*engine_ == 0 || employer.engine == *engine_));
  struct stat info{};
  return ours && ::stat(("/proc/" + std::to_string(process)).c_str(), &info) == 0 &&
         (builds || info.st_uid == 0 || info.st_uid == owner_);  // gVisor's own are nobody's
}

bool Working::look() {
  const auto now = std::chrono::steady_clock::now();
  if (!engine_.has_value()) {
    engine_ = engine_at(socket_);
  }
  std::uint64_t used = 0;
  bool waits = false;
  const HostProcesses all = look_around();
  for (const auto& [number, process] : all) {
    if (number == known_ || counts(all, number)) {
      const Use use = use_of(number);
      used += use.nanoseconds;
      waits = waits || use.waits;
    }
  }
  // Helpers that have ended take their time with them: less than before is work as well.
  const bool works = waits || used >= used_ + kLittle || used + kLittle <= used_;
  const bool first = std::exchange(looked_, true) == false;
  if (works || first || now - since_ >= kWhile) {
    used_ = used;
    since_ = now;
  }
  return works && (waits || !first) && !is_stopped();
}

// One that somebody has stopped does nothing with what others do for it.
bool Working::is_stopped() const {
  return *engine_ != 0 &&
         parse_task(read_proc("/proc/" + std::to_string(*engine_) + "/stat")).state == 'T';
}

std::chrono::milliseconds Working::quiet() {
  const auto now = std::chrono::steady_clock::now();
  if (look()) {
    busy_ = now;
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - busy_);
}

}  // namespace carrel::docker
