#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/native/enforcement.h"
#include "backends/native/launch.h"
#include "backends/native/nursery.h"
#include "base/result.h"
#include "policy/spec.h"
#include "sandbox/command.h"
#include "sandbox/exec_result.h"
#include "storage/home.h"

namespace carrel::native {

// Runs one command in a sandbox of its own and removes the sandbox, whatever happens. It needs no
// keeper and no database: its record is its control group and a locked file, and if this process
// dies, its stream closes and the guest ends everything.
struct OneShot {
  policy::Spec spec;
  sandbox::CommandRequest command;
  std::vector<GivenTree> trees;  // the spec's mounts, for one run: see open_mounts()
};

// Called once the sandbox is known to be enforceable, before the command runs.
using EnforcementListener = std::function<void(const Enforcement&)>;

// The one-shot sandboxes of one home, for a program that makes many, one after the other or side by
// side: what is the same for all of them is looked at once in a while. With a lender their first
// processes are borrowed, where he has one.
class OneShots {
 public:
  OneShots(storage::Home& home, sandbox::FindWalls find_walls, Lender* lender = nullptr)
      : home_(&home), find_walls_(find_walls), lender_(lender) {}
  OneShots(const OneShots&) = delete;
  OneShots& operator=(const OneShots&) = delete;
  ~OneShots();

  Result<sandbox::ExecResult> run(const OneShot& job, const sandbox::CommandIo& io,
                                  const EnforcementListener& listener = {});

 private:
  using Clock = std::chrono::steady_clock;
  class Making;

  std::shared_ptr<const HostSetup> seen_host();
  void keep_host(std::shared_ptr<const HostSetup> host);
  void sweep();

  storage::Home* home_;
  sandbox::FindWalls find_walls_;
  Lender* lender_;
  std::mutex mutex_;  // for what follows
  std::shared_ptr<const HostSetup> host_;
  Clock::time_point host_seen_;
  Clock::time_point swept_;
  std::atomic<bool> left_place_ = false;
};

}  // namespace carrel::native
