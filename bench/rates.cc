#include <atomic>
#include <thread>

#include "bench/sections.h"

namespace carrel::bench {

namespace {

constexpr int kWorkers = 8;
constexpr Budget kRate{Budget::Better::kMore, 1.5, 8};
constexpr char kTrue[] = "/bin/true";

// How many a second, with eight workers that each make the next as soon as the last is gone. The
// time ends with the last one's end, so that nothing counts that is not finished.
Result<double> rate(const std::function<Launch(int worker)>& make, double milliseconds) {
  std::atomic<int> finished = 0;
  std::atomic<bool> failed = false;
  std::vector<std::optional<Error>> errors(kWorkers);
  const double before = now_ms();
  std::vector<std::thread> workers;
  workers.reserve(kWorkers);
  for (int worker = 0; worker < kWorkers; ++worker) {
    workers.emplace_back([&, worker] {
      const Launch launch = make(worker);
      while (!failed && now_ms() - before < milliseconds) {
        auto time = time_run(launch);
        if (!time.ok()) {
          errors[static_cast<std::size_t>(worker)] = time.error();
          failed = true;
          return;
        }
        ++finished;
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  for (const std::optional<Error>& error : errors) {
    if (error.has_value()) {
      return *error;
    }
  }
  return finished * 1000.0 / (now_ms() - before);
}

Contender rated(std::string name, std::function<Launch(int)> make, double milliseconds) {
  return Contender{std::move(name), [make = std::move(make), milliseconds]() -> Result<double> {
                     return rate(make, milliseconds);
                   }};
}

}  // namespace

void measure_rates(const Setup& setup, Effort effort, Report& report) {
  const double slice = effort == Effort::kFull ? 2000 : 700;
  std::vector<Contender> contenders;
  if (!setup.bwrap.empty()) {
    contenders.push_back(
        rated("bubblewrap", [&](int) { return bwrap_launch(setup, Who::kRoot, {kTrue}); }, slice));
    contenders.push_back(rated(
        "bubblewrap, user", [&](int) { return bwrap_launch(setup, Who::kUser, {kTrue}); }, slice));
  }
  contenders.push_back(rated(
      "carrel run",
      [&](int) { return carrel_launch(setup, Who::kRoot, "idle", {"run", "--", kTrue}); }, slice));
  contenders.back().peer = "bubblewrap";
  contenders.back().budget = kRate;
  contenders.push_back(rated(
      "carrel run, user",
      [&](int) { return carrel_launch(setup, Who::kUser, "idle", {"run", "--", kTrue}); }, slice));
  contenders.back().peer = "bubblewrap, user";
  contenders.back().budget = kRate;
  if (!setup.runc.empty()) {
    contenders.push_back(
        rated("runc run", [&](int worker) { return runc_launch(setup, worker); }, slice));
    contenders.back().peer = "bubblewrap";
    contenders.back().every = 2;
  }
  if (setup.has_docker()) {
    contenders.push_back(rated(
        "docker run", [&](int) { return docker_run_launch(setup, {"--rm"}, {kTrue}); }, 2 * slice));
    contenders.back().peer = "bubblewrap";
    contenders.back().every = 5;
  }
  interleave(report, "made and removed, 8 workers", "/s", std::move(contenders),
             effort == Effort::kFull ? Rounds{1, 11} : Rounds{0, 3});
}

}  // namespace carrel::bench
