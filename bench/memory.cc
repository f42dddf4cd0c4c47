#include <unistd.h>

#include <memory>

#include "bench/memory_groups.h"
#include "bench/sections.h"
#include "storage/home.h"

namespace carrel::bench {

namespace {

constexpr Budget kMemory{Budget::Better::kLess, 1.0 / 3, 1.0 / 5};
constexpr char kSection[] = "an idle sandbox with its shell, everything";
constexpr char kOwnSection[] = "the same, its own control group only";
constexpr char kDocker[] = "docker, sleep";
constexpr char kHome[] = "memory";
constexpr double kMebibyte = 1 << 20;

// The memory settles some moments after the last process was started.
void settle() { ::usleep(1'500'000); }

// Makes `count` sandboxes. What one costs is the growth of all groups that have a part in it,
// whoever keeps the books: the sandbox's own group, and that of the process that made it.
class Growth {
 public:
  Growth(const MemoryGroups& groups, std::vector<std::string> parts)
      : groups_(groups), parts_(std::move(parts)), before_(now()) {}

  [[nodiscard]] double per(int count) const { return (now() - before_) / count / kMebibyte; }
  // A group that was not there before, and is not below one that is counted.
  void add(std::string part) { parts_.push_back(std::move(part)); }

 private:
  [[nodiscard]] double now() const {
    double sum = 0;
    for (const std::string& part : parts_) {
      sum += static_cast<double>(groups_.bytes(part));
    }
    return sum;
  }

  const MemoryGroups& groups_;
  std::vector<std::string> parts_;
  double before_;
};

struct Samples {
  std::vector<double> everything;
  std::vector<double> own;
};

Status grow_docker(const Setup& setup, const MemoryGroups& groups, int count, Samples& samples) {
  const std::string containers = setup.groups + "/containers";
  std::vector<std::string> arguments = {"rm", "-f"};
  Growth growth(groups, {containers, setup.groups + "/docker"});
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    auto id = output_of(docker_run_launch(setup, {"-d"}, {"/bin/sleep", "100000"}));
    if (!id.ok()) {
      status = id.error();
      break;
    }
    arguments.push_back(id.value());
  }
  settle();
  if (status.ok()) {
    samples.everything.push_back(growth.per(count));
    for (std::size_t i = 2; i < arguments.size(); ++i) {
      samples.own.push_back(static_cast<double>(groups.bytes(containers + "/" + arguments[i])) /
                            kMebibyte);
    }
  }
  if (arguments.size() > 2) {
    (void)output_of(docker_launch(setup, arguments));
  }
  return status;
}

Status grow_bwrap(const Setup& setup, const MemoryGroups& groups, int count, Samples& samples) {
  const std::string parent = setup.groups + "/bubblewrap";
  CARREL_TRY(groups.make(parent));
  {
    std::vector<PipedProcess> shells;
    Growth growth(groups, {parent});
    for (int i = 0; i < count; ++i) {
      Launch launch = bwrap_launch(setup, Who::kRoot, {"/bin/bash", "--noprofile", "--norc"});
      CARREL_ASSIGN(launch.group, groups.make(parent + "/" + std::to_string(i)));
      CARREL_ASSIGN(PipedProcess shell, PipedProcess::start(launch));
      CARREL_TRY(shell.ask("echo ready\n", "ready\n"));
      shells.push_back(std::move(shell));
    }
    settle();
    samples.everything.push_back(growth.per(count));
    for (int i = 0; i < count; ++i) {
      samples.own.push_back(static_cast<double>(groups.bytes(parent + "/" + std::to_string(i))) /
                            kMebibyte);
    }
  }
  for (int i = 0; i < count; ++i) {
    groups.remove(parent + "/" + std::to_string(i));
  }
  groups.remove(parent);
  return {};
}

// Where the group of a sandbox is: where its maker is, or at the top.
Result<std::string> find_own(const MemoryGroups& groups, const std::string& maker,
                             const std::string& name) {
  for (const std::string& path : {maker + "/" + name, name}) {
    if (groups.has(path)) {
      return path;
    }
  }
  return Error{Code::kNotFound, 0, "there is no control group " + name + " that counts memory", {}};
}

Status grow_carrel(const Setup& setup, const MemoryGroups& groups, int count, Samples& samples) {
  CARREL_ASSIGN(std::string keeper, groups.make(setup.groups + "/keeper"));
  // The first one starts the keeper, which is there once for all of them.
  std::vector<std::string> ids;
  CARREL_ASSIGN(std::string first, create_box(setup, Who::kRoot, kHome, keeper));
  ids.push_back(first);
  CARREL_ASSIGN(storage::Home home, storage::Home::open_at(home_path(setup, Who::kRoot, kHome)));
  const std::string maker = setup.groups + "/keeper";
  settle();
  Growth growth(groups, {maker});
  Status status;
  for (int i = 0; i < count; ++i) {
    auto id = create_box(setup, Who::kRoot, kHome, keeper);
    if (!id.ok()) {
      status = id.error();
      break;
    }
    ids.push_back(id.value());
  }
  settle();
  for (std::size_t i = 1; i < ids.size() && status.ok(); ++i) {
    auto own = find_own(groups, maker, "carrel-" + home.label() + "-" + ids[i]);
    if (!own.ok()) {
      status = own.error();
      break;
    }
    if (!own.value().starts_with(maker)) {
      growth.add(own.value());
    }
    samples.own.push_back(static_cast<double>(groups.bytes(own.value())) / kMebibyte);
  }
  if (status.ok()) {
    samples.everything.push_back(growth.per(count));
  }
  for (const std::string& id : ids) {
    Status removed = remove_box(setup, Who::kRoot, kHome, id);
    status = status.ok() ? removed : status;
  }
  return status;
}

using Grow = Status (*)(const Setup&, const MemoryGroups&, int, Samples&);

struct Subject {
  const char* name;
  Grow grow;
  Samples samples = {};
  Status status = {};
};

void add_rows(const std::vector<Subject>& subjects, Report& report) {
  for (const Subject& subject : subjects) {
    if (!subject.status.ok()) {
      report.leave_out(std::string(kSection) + ", " + subject.name,
                       subject.status.error().to_string());
      continue;
    }
    const bool ours = subject.grow == grow_carrel;
    const std::string peer = subject.grow == grow_docker ? "" : kDocker;
    report.add(Row{kSection, subject.name, "MiB", summarize(subject.samples.everything), peer,
                   ours ? std::optional<Budget>(kMemory) : std::nullopt});
    report.add(
        Row{kOwnSection, subject.name, "MiB", summarize(subject.samples.own), peer, std::nullopt});
  }
}

}  // namespace

void measure_memory(const Setup& setup, Effort effort, Report& report) {
  auto groups = MemoryGroups::find();
  if (!groups.ok()) {
    report.leave_out(kSection, groups.error().to_string());
    return;
  }
  if (auto made = groups.value().make(setup.groups); !made.ok()) {
    report.leave_out(kSection, made.error().to_string());
    return;
  }
  std::vector<Subject> subjects;
  if (setup.has_docker()) {
    subjects.push_back({kDocker, grow_docker});
  }
  if (!setup.bwrap.empty()) {
    subjects.push_back({"bubblewrap, bash", grow_bwrap});
  }
  subjects.push_back({"carrel", grow_carrel});
  const int rounds = effort == Effort::kFull ? 5 : 1;
  const int count = effort == Effort::kFull ? 10 : 8;
  for (int round = 0; round < rounds; ++round) {
    for (Subject& subject : subjects) {
      if (subject.status.ok()) {
        subject.status = subject.grow(setup, groups.value(), count, subject.samples);
      }
    }
  }
  add_rows(subjects, report);
}

}  // namespace carrel::bench
