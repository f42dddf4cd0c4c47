#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backends/native/mount_plan.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "egress/client.h"
#include "kernel/captive_network.h"
#include "protocol/boot.h"
#include "storage/home.h"

// Where one-shot sandboxes get their first process from when somebody keeps one ready to be copied:
// see src/guest/nursery.h.
namespace carrel::native {

// The first process of a sandbox, made by a nursery: it stands in what its root has alike with
// others and builds the rest. It is nobody's child; it ends with its stream.
struct LentProcess {
  UniqueFd pidfd;
  UniqueFd stream;
  egress::HandedSockets network;  // of its captive network, if that was made ahead
};

inline protocol::Captive messages_of(const kernel::CaptiveNetwork& network) {
  return {network.routes, network.routes6, network.rules};
}

struct Wanted {
  const MountPlan& plan;
  std::optional<std::uint32_t> id_range;  // as root
  int into = -1;                          // a v2 control group to be born in
  protocol::Captive captive;              // empty: it has no way out
};

// A process that was asked for.
class Loan {
 public:
  explicit Loan(UniqueFd stream) : stream_(std::move(stream)) {}
  // Waits for it. Where there is none that fits, whoever asked makes the process himself.
  Result<LentProcess> take();

 private:
  UniqueFd stream_;
};

// Somebody who may have a nursery.
class Lender {
 public:
  Lender() = default;
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;
  virtual ~Lender() = default;
  // Whether it is worth the work of a plan to ask him.
  virtual bool is_there() = 0;
  // Nothing where he has none.
  virtual std::optional<Loan> ask(const Wanted& wanted) = 0;
};

class Nursery {
 public:
  // For plans of this kind, and for whoever is in the same circumstances as this process. With a
  // listener it also serves whoever connects to it.
  static Result<Nursery> start(const MountPlan& plan, UniqueFd listener);

  [[nodiscard]] bool fits(const MountPlan& plan) const;
  // Plans and circumstances that it serves, as a text to compare.
  [[nodiscard]] const std::string& kind() const { return kind_; }
  Result<Loan> ask(const Wanted& wanted, const std::string& terms);
  // Readable when it has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }

  Nursery(Nursery&& other) noexcept;
  Nursery& operator=(Nursery&&) = delete;
  Nursery(const Nursery&) = delete;
  Nursery& operator=(const Nursery&) = delete;
  ~Nursery();  // sandboxes that it made live on

 private:
  Nursery() = default;

  pid_t pid_ = 0;
  UniqueFd pidfd_;
  UniqueFd stream_;
  std::string kind_;
};

// For a program that makes many sandboxes: the second of one kind starts a nursery for that kind.
class OwnNursery : public Lender {
 public:
  bool is_there() override { return true; }
  std::optional<Loan> ask(const Wanted& wanted) override;

 private:
  std::mutex mutex_;
  std::optional<Nursery> nursery_;
  std::string last_kind_;  // of the last sandbox that it could not serve
};

// The one that the keeper keeps, if there is a keeper and it has one.
class KeepersNursery : public Lender {
 public:
  explicit KeepersNursery(const storage::Home& home) : home_(&home) {}
  bool is_there() override;
  std::optional<Loan> ask(const Wanted& wanted) override;

  // Whether it would have been asked, and was not there.
  [[nodiscard]] bool was_missed() const { return missed_; }

 private:
  const storage::Home* home_;
  UniqueFd socket_;  // for one question
  bool missed_ = false;
};

// The keeper's socket for it, in the run-time directory `run`.
Result<UniqueFd> listen_for_nursery(int run);
void unlink_nursery(int run);

}  // namespace carrel::native
