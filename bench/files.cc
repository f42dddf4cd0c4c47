#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "bench/sections.h"

namespace carrel::bench {

namespace {

namespace fs = std::filesystem;

constexpr char kHome[] = "files";
constexpr char kInSection[] = "100 MiB into a sandbox";
constexpr char kOutSection[] = "100 MiB out of a sandbox";
constexpr char kManySection[] = "5,000 files of 4 KiB into a sandbox";
constexpr Budget kOneFile{Budget::Better::kLess, 3, 1.3};
constexpr Budget kManyFiles{Budget::Better::kLess, 1.0 / 3, 1.0 / 6};
constexpr int kDirectories = 50;
constexpr int kFilesInEach = 100;

// What is copied: bytes that no file system makes smaller.
std::string bytes(std::size_t size, std::uint64_t seed) {
  std::string made(size, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (char& c : made) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state);
  }
  return made;
}

Status make_sources(const std::string& directory) {
  fs::create_directories(directory + "/many");
  std::ofstream big(directory + "/big", std::ios::binary);
  for (std::uint64_t i = 0; i < 100; ++i) {
    big << bytes(1U << 20, i);
  }
  for (int i = 0; i < kDirectories; ++i) {
    const std::string below = directory + "/many/d" + std::to_string(i);
    fs::create_directory(below);
    for (int j = 0; j < kFilesInEach; ++j) {
      std::ofstream file(below + "/f" + std::to_string(j), std::ios::binary);
      file << bytes(4096,
                    static_cast<std::uint64_t>(i) * kFilesInEach + static_cast<std::uint64_t>(j));
    }
  }
  big.flush();
  return big.good() ? Status{}
                    : Status{Error{Code::kSystem, 0, "no room for what is to be copied", {}}};
}

// Times it, and runs `clean` afterwards, which does not count.
Contender timed(std::string name, const Launch& launch, std::function<void()> clean = {}) {
  return Contender{std::move(name), [launch, clean = std::move(clean)]() -> Result<double> {
                     Result<double> taken = time_run(launch);
                     if (clean) {
                       clean();
                     }
                     return taken;
                   }};
}

Contender compared(Contender contender, std::string peer, std::optional<Budget> budget) {
  contender.peer = std::move(peer);
  contender.budget = budget;
  return contender;
}

// A container to copy to; empty, and left out, where there is none.
std::string start_container(const Setup& setup, Report& report) {
  if (!setup.has_docker()) {
    report.leave_out("docker cp", setup.why_no_docker);
    return {};
  }
  auto id = output_of(docker_run_launch(setup, {"-d"}, {"/bin/sleep", "100000"}));
  if (!id.ok()) {
    report.leave_out("docker cp", id.error().to_string());
    return {};
  }
  return id.value();
}

}  // namespace

void measure_files(const Setup& setup, Effort effort, Report& report) {
  const std::string directory = setup.directory + "/copied";
  Status made = make_sources(directory);
  auto box = made.ok() ? create_box(setup, Who::kRoot, kHome) : made.error();
  if (!box.ok()) {
    report.leave_out("files", box.error().to_string());
    return;
  }
  const std::string& id = box.value();
  const std::string container = start_container(setup, report);
  const Rounds rounds = effort == Effort::kFull ? Rounds{2, 30, 50} : Rounds{1, 5, 50};
  const auto carrel = [&](std::vector<std::string> words) {
    return carrel_launch(setup, Who::kRoot, kHome, std::move(words));
  };
  const std::string big = directory + "/big";
  const std::string copy = directory + "/copy";
  const auto remove_copy = [copy] { fs::remove_all(copy); };

  std::vector<Contender> in;
  in.push_back(timed("cp", plain_launch({"/bin/cp", big, copy}), remove_copy));
  in.push_back(compared(timed("carrel cp", carrel({"cp", big, id + ":big"})), "cp", kOneFile));
  std::vector<Contender> out;
  out.push_back(timed("cp", plain_launch({"/bin/cp", big, copy}), remove_copy));
  out.push_back(
      compared(timed("carrel cp", carrel({"cp", id + ":big", copy}), remove_copy), "cp", kOneFile));
  std::vector<Contender> many;
  many.push_back(
      timed("cp -a", plain_launch({"/bin/cp", "-a", directory + "/many", copy}), remove_copy));
  const Launch clean = carrel({"file", "rm", "-r", id, "many"});
  const auto remove_many = [clean] { (void)output_of(clean); };
  many.push_back(
      compared(timed("carrel cp", carrel({"cp", directory + "/many", id + ":many"}), remove_many),
               container.empty() ? "cp -a" : "docker cp",
               container.empty() ? std::nullopt : std::optional(kManyFiles)));
  if (!container.empty()) {
    const auto docker_cp = [&](const std::string& from, const std::string& to) {
      return docker_launch(setup, {"cp", "-q", from, to});
    };
    in.push_back(compared(timed("docker cp", docker_cp(big, container + ":/tmp/big")), "cp", {}));
    out.push_back(compared(
        timed("docker cp", docker_cp(container + ":/tmp/big", copy), remove_copy), "cp", {}));
    many.push_back(compared(
        timed("docker cp", docker_cp(directory + "/many", container + ":/tmp/many")), "cp -a", {}));
    many.back().every = 3;
  }
  interleave(report, kInSection, "ms", std::move(in), rounds);
  interleave(report, kOutSection, "ms", std::move(out), rounds);
  interleave(report, kManySection, "ms", std::move(many), rounds);
  if (!container.empty()) {
    (void)output_of(docker_launch(setup, {"rm", "-f", container}));
  }
  if (Status removed = remove_box(setup, Who::kRoot, kHome, id); !removed.ok()) {
    report.warn("a sandbox of the benchmark was not removed: " + removed.error().to_string());
  }
  fs::remove_all(directory);
}

}  // namespace carrel::bench
