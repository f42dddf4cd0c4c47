#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/unique_fd.h"
#include "bench/flows.h"
#include "bench/loop_disk.h"
#include "bench/sections.h"
#include "storage/workspaces/disk_image.h"

namespace carrel::bench {

namespace {

constexpr Budget kSnapshotPlain{Budget::Better::kLess, 1.0 / 30, 1.0 / 50};
constexpr Budget kSnapshotShared{Budget::Better::kLess, 1.0 / 100, 1.0 / 300};
constexpr Budget kCheckpoint{Budget::Better::kLess, 1.0 / 25, 1.0 / 40};
constexpr Budget kFork{Budget::Better::kLess, 2, 1.2};
constexpr char kCopy[] = "cp -a";
constexpr char kEmptyFork[] = "fork of an empty workspace";
// 100 files of 52 KiB in each directory.
constexpr int kDirectories = 200;
constexpr int kQuickDirectories = 20;

std::string fill_script(int directories) {
  return "cd /workspace; for d in $(seq " + std::to_string(directories) +
         "); do mkdir d$d; head -c 5368700 /dev/urandom | split -b 53687 -a 2 - d$d/f || exit 1; "
         "done";
}

// Ten files of ten directories, each with new contents of the same size.
constexpr char kChange[] =
    "cd /workspace; for d in 1 2 3 4 5 6 7 8 9 10; do head -c 53687 /dev/urandom > d$d/fbb; done";

// The workspaces "big" and "empty" of one installation, each with a sandbox in it.
class Room {
 public:
  static Result<std::unique_ptr<Room>> make(const Setup& setup, Who who, const std::string& home,
                                            Effort effort) {
    auto room = std::make_unique<Room>(setup, who, home);
    CARREL_ASSIGN(room->big_, room->carrel({"create", "--workspace", "big", "--disk", "8g"}));
    CARREL_ASSIGN(room->empty_, room->carrel({"create", "--workspace", "empty", "--disk", "8g"}));
    const int directories = effort == Effort::kFull ? kDirectories : kQuickDirectories;
    CARREL_TRY(room->carrel({"exec", room->big_, "--", "bash", "-c", fill_script(directories)}));
    for (const char* name : {"big", "empty"}) {
      CARREL_ASSIGN(const std::string id, room->carrel({"snapshot", name}));
      room->snapshots_.push_back(id);
    }
    room->snapshots_.pop_back();
    return room;
  }
  Room(const Setup& setup, Who who, std::string home)
      : setup_(setup), who_(who), home_(std::move(home)) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    (void)carrel({"rm", "--all", "--force"});
    auto flows = carrel({"flow", "ls", "--json", "--limit", "1000"});
    const auto list = nlohmann::json::parse(flows.ok() ? flows.value() : "", nullptr, false);
    if (list.is_object()) {
      for (const auto& one : list["executions"]) {
        (void)carrel({"flow", "rm", one.value("execution", "")});
      }
    }
    for (const char* name : {"big", "empty"}) {
      (void)carrel({"workspace", "rm", name});
    }
  }

  // The same tree, copied by a command beside it.
  Result<double> copy(const std::vector<std::string>& command) const {
    const std::string home = home_path(setup_, who_, home_);
    const std::string copy = home + "/copy";
    std::vector<std::string> words = command;
    // Where the workspace has a file system of its own, that is where its tree is.
    const std::string place = home + "/workspaces/big";
    const UniqueFd directory(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    UniqueFd top;
    if (storage::has_disk(directory.get())) {
      CARREL_ASSIGN(top, storage::open_disk(directory.get()));
    }
    const std::string in =
        top.valid() ? "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(top.get())
                    : place;
    words.insert(words.end(), {in + "/tree", copy});
    auto time = time_run(plain_launch(std::move(words)));
    std::filesystem::remove_all(copy);
    settle();
    return time;
  }

  // What the workload stood still for it is kept apart.
  Result<double> snapshot() {
    settle();
    CARREL_TRY(carrel({"exec", big_, "--", "bash", "-c", kChange}));
    const double before = now_ms();
    CARREL_ASSIGN(const std::string answer, carrel({"snapshot", "big", "--json"}));
    const double took = now_ms() - before;
    const auto row = nlohmann::json::parse(answer, nullptr, false);
    if (!row.is_object() || row.value("changed", 0) < 10) {
      return Error{Code::kSystem, 0, "the snapshot does not hold the ten files", {}};
    }
    snapshots_.push_back(row["id"]);
    frozen_ms_.push_back(static_cast<double>(row.value("frozen_us", std::int64_t{0})) / 1000);
    return took;
  }

  // The same as the end of a turn: with the record, and what the files are.
  Result<double> checkpoint() const {
    settle();
    return time_checkpoint(setup_, who_, home_, "big", {"exec", big_, "--", "bash", "-c", kChange});
  }

  // From the newest to the one before it, or back: ten files differ.
  Result<double> restore() {
    if (snapshots_.size() < 2) {
      CARREL_TRY(snapshot());
    }
    const std::string& to = snapshots_[snapshots_.size() - 1 - (restores_++ + 1) % 2];
    settle();
    return time_run(carrel_launch(setup_, who_, home_, {"restore", "big", to}));
  }

  Result<double> fork(const std::string& workspace) const {
    settle();
    const double before = now_ms();
    CARREL_ASSIGN(const std::string id, carrel({"fork", workspace, "--workspace", "fork"}));
    const double took = now_ms() - before;
    CARREL_TRY(carrel({"rm", "--force", id}));
    CARREL_TRY(carrel({"workspace", "rm", "fork"}));
    return took;
  }

  [[nodiscard]] const std::vector<double>& frozen_ms() const { return frozen_ms_; }

 private:
  Result<std::string> carrel(std::vector<std::string> words) const {
    return output_of(carrel_launch(setup_, who_, home_, std::move(words)));
  }
  // What others left to be written is no burden to the next sample.
  void settle() const {
    const UniqueFd home(
        ::open(home_path(setup_, who_, home_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    (void)::syncfs(home.get());
  }

  const Setup& setup_;
  Who who_;
  std::string home_;
  std::string big_;
  std::string empty_;
  std::vector<std::string> snapshots_;  // of "big"
  std::vector<double> frozen_ms_;
  std::size_t restores_ = 0;
};

enum class Blocks { kCopied, kShared };

// What is measured, where, and by whom.
struct Place {
  Who who;
  std::string home;
  std::string where;
  Blocks blocks;
};

void measure_at(const Setup& setup, const Place& place, Effort effort, Report& report) {
  const std::string where =
      place.where + (place.who == Who::kUser ? ", an ordinary user" : ", root");
  const Blocks blocks = place.blocks;
  auto room = Room::make(setup, place.who, place.home, effort);
  if (!room.ok()) {
    report.leave_out("workspaces " + where, room.error().to_string());
    return;
  }
  Room& in = **room;
  const std::string size =
      effort == Effort::kFull ? "1 GiB in 20,000 files" : "100 MiB in 2,000 files";
  const std::string section = "workspace of " + size + ", " + where;
  const int slow = effort == Effort::kFull ? 3 : 2;
  std::vector<Contender> contenders;
  contenders.push_back(Contender{
      kCopy, [&in] { return in.copy({"/bin/cp", "-a", "--reflink=never"}); }, {}, {}, slow});
  if (blocks == Blocks::kShared) {
    contenders.push_back(Contender{"cp -a --reflink",
                                   [&in] { return in.copy({"/bin/cp", "-a", "--reflink=always"}); },
                                   kCopy,
                                   {},
                                   slow});
  }
  contenders.push_back(Contender{"snapshot, 10 files changed", [&in] { return in.snapshot(); },
                                 kCopy,
                                 blocks == Blocks::kShared ? kSnapshotShared : kSnapshotPlain});
  contenders.push_back(
      Contender{"checkpoint of a turn, 10 files changed", [&in] { return in.checkpoint(); }, kCopy,
                blocks == Blocks::kCopied ? std::optional(kCheckpoint) : std::nullopt});
  contenders.push_back(
      Contender{"restore, 10 files differ", [&in] { return in.restore(); }, kCopy});
  interleave(report, section, "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{3, 21} : Rounds{1, 4});
  if (!in.frozen_ms().empty()) {
    report.add(Row{section,
                   "snapshot: the workload stands still",
                   "ms",
                   summarize(in.frozen_ms()),
                   kCopy,
                   {}});
  }
  std::vector<Contender> forks;
  forks.push_back(Contender{kEmptyFork, [&in] { return in.fork("empty"); }});
  forks.push_back(Contender{"fork of it", [&in] { return in.fork("big"); }, kEmptyFork, kFork});
  interleave(report, "a fork, " + where, "ms", std::move(forks),
             effort == Effort::kFull ? Rounds{2, 21} : Rounds{1, 4});
}

}  // namespace

void measure_workspaces(const Setup& setup, Effort effort, Report& report) {
  const std::string where = "on " + file_system_of(setup.directory);
  for (const Who who : {Who::kRoot, Who::kUser}) {
    measure_at(setup, {who, "workspaces", where, Blocks::kCopied}, effort, report);
    std::filesystem::remove_all(home_path(setup, who, "workspaces") + "/layers");
  }
  for (const Who who : {Who::kRoot, Who::kUser}) {
    auto disk = LoopDisk::make(setup.directory + "/btrfs.img", home_path(setup, who, "btrfs"),
                               who == Who::kUser ? setup.user : User{});
    if (!disk.ok()) {
      report.leave_out("workspaces on btrfs", disk.error().to_string());
      return;
    }
    measure_at(setup, {who, "btrfs", "on btrfs", Blocks::kShared}, effort, report);
  }
}

}  // namespace carrel::bench
