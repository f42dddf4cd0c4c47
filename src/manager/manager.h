#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/native/warm_supply.h"
#include "base/result.h"
#include "manager/ledger.h"
#include "manager/making.h"
#include "manager/owned.h"
#include "manager/quota.h"
#include "policy/spec.h"
#include "sandbox/guest_stream.h"
#include "storage/box.h"
#include "storage/box_use.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::manager {

// On whose behalf something is done. The operator, whose name is empty, has all sandboxes; anybody
// else has those that he made, and for him there are no others.
struct Caller {
  std::string owner;
  Quota quota = {};

  [[nodiscard]] bool is_operator() const { return owner.empty(); }
};

struct ManagerOptions {
  std::size_t most_sandboxes = 100;
  std::size_t most_visits = 24;  // at once, in one sandbox
  Reserve reserve = {};          // of the host; below it nothing is made or started
  FinishRestore finish_restore = {};
  std::size_t warm = 0;      // sandboxes that are kept ready
  policy::Spec likely = {};  // for what will most likely be asked for
};

// Many sandboxes of one home, for many threads. It knows nothing that is not on disk: there may be
// another one after it at any moment, which goes on where this one stopped.
class Manager {
 public:
  static Result<std::unique_ptr<Manager>> open(storage::Home home, ManagerOptions options);

  struct Created {
    storage::SandboxRow row;
    enum class How { kNow, kBefore } how = How::kNow;  // before: under the same key
  };
  // `key` may be empty. The same key with the same `digest` gives the same sandbox; with another
  // digest, or while the first is still being made, it is kConflict. kResource: there are as many
  // sandboxes as there may be, in all or for this caller, those on their way included; or the host
  // has no room.
  Result<Created> create(const Caller& caller, Wish wish, const std::string& key,
                         const std::string& digest);

  // What something may take of the disk of which nobody can tell before how much it will be;
  // nothing: as much as there is.
  using Most = std::optional<std::uint64_t>;
  // Another sandbox like one of the caller's, which `make` makes; it is the caller's, too.
  Result<storage::SandboxRow> fork(const Caller& caller, const std::string& id,
                                   const std::function<Result<std::string>(Most most)>& make);
  // A snapshot of the workspace of one of the caller's, which `take` takes.
  Status snapshot(const Caller& caller, const std::string& id,
                  const std::function<Status(Most most)>& take);
  // What the caller has on the disk beside sandboxes; the operator, what everybody has.
  Result<Owned> owned(const Caller& caller);
  // kNotFound for what is another's; kConflict for what is in use. With its snapshots.
  Status remove_workspace(const Caller& caller, const std::string& name);
  Status remove_snapshot(const Caller& caller, const std::string& id);
  // kResource when the host has no room for one more sandbox.
  [[nodiscard]] Status check_host() const;
  // A place for a one-shot, as long as the result is kept. Those of the operator are not counted.
  class Place;
  Result<std::shared_ptr<Place>> hold_once(const Caller& caller, const policy::Limits& limits);

  // "Sandbox ID not found" for what is not there and for what is another's.
  Result<storage::SandboxRow> find(const Caller& caller, const std::string& id);
  Result<std::vector<storage::SandboxRow>> list(const Caller& caller, storage::State::Which which);
  // Whether everybody may reach a port of it, be it without a token.
  enum class Reach { kOwner, kEverybody };
  Status set_reach(const Caller& caller, const std::string& id, std::uint16_t port, Reach reach);
  bool is_public(const std::string& id, std::uint16_t port);
  Result<std::vector<std::uint16_t>> public_ports(const Caller& caller, const std::string& id);
  // Ends it and removes what belongs to it. One that has ended is fine.
  Status remove(const Caller& caller, const std::string& id, int grace_ms);

  // A connection to a sandbox's guest, for one thread. While there is one, the sandbox counts as
  // used.
  class Visit {
   public:
    Visit(Manager& manager, storage::BoxRecord record)
        : manager_(&manager), record_(std::move(record)) {}
    Visit(Visit&& other) noexcept;
    Visit& operator=(Visit&&) = delete;
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit();

    [[nodiscard]] const storage::BoxRecord& record() const { return record_; }
    sandbox::GuestStream& stream() { return stream_; }
    // Another connection to the same guest, which is part of this visit.
    [[nodiscard]] Result<sandbox::GuestStream> another() const;
    // Nothing is on its way over the stream any more: the next visit may have it.
    void keep_stream() { keep_ = true; }

   private:
    friend class Manager;
    Manager* manager_;
    storage::BoxRecord record_;
    storage::BoxUse use_;
    sandbox::GuestStream stream_;
    bool keep_ = false;
  };
  // kGone, with why it ended, for one that has ended; kResource when too many are in it already.
  // One that rests because nobody used it is woken; kConflict for one that somebody paused.
  Result<Visit> visit(const Caller& caller, const std::string& id);

  // A connection that is no use of it: what rests is not woken, and what is idle stays so.
  Result<Visit> look_into(const Caller& caller, const std::string& id);
  // The record of one that is not stopped and has not ended; it is left as it is.
  Result<storage::BoxRecord> record_of(const Caller& caller, const std::string& id) {
    return live_record(caller, id, Rest::kLeft);
  }

  // Makes it stand still, with all that is in its memory, and lets it go on. Both are fine twice.
  Status pause(const Caller& caller, const std::string& id);
  Status resume(const Caller& caller, const std::string& id);
  // Ends what runs in it and keeps the rest: its settings, its id and its workspace, which needs a
  // name. It is not counted until it is started again. Both are fine twice.
  Status stop(const Caller& caller, const std::string& id, int grace_ms);
  Status start(const Caller& caller, const std::string& id);

  // The deadline from now on after which the sandbox ends by itself; 0: none.
  Status set_lease(const Caller& caller, const std::string& id, std::uint64_t lease_ms);

  // An error of a sandbox that ended under somebody's hands, with why it did.
  Error explain_end(const std::string& id, Error error);

  struct Stats {
    std::size_t live = 0;
    std::size_t creating = 0;
    std::size_t visits = 0;
    std::size_t most = 0;
  };
  Result<Stats> stats();
  // Sandboxes that are kept ready; somebody has to call its run().
  native::WarmSupply& warm() { return warm_; }

  // Puts to rest whatever nobody has used for as long as its settings say. Called every second or
  // so; what fails for one sandbox is tried again later, and told as an event.
  void rest_idle();
  // Removes what crashes left and forgets what is old. Called every now and then.
  void tidy();

  storage::Home& home() { return home_; }

 private:
  class KeyUse;

  Manager(storage::Home home, ManagerOptions options, storage::State state, Ledger ledger,
          storage::WorkspaceRecords workspaces)
      : home_(std::move(home)),
        options_(std::move(options)),
        warm_(home_, options_.warm, options_.likely),
        state_(std::move(state)),
        ledger_(std::move(ledger)),
        workspaces_(std::move(workspaces)) {}

  Result<std::optional<Created>> find_made(const Caller& caller, const std::string& key,
                                           const std::string& digest);
  struct Hold {
    std::string owner;
    Weight weight;
    std::string id;  // empty: not known yet
  };
  // The caller makes a Place of it, which gives it back.
  Result<std::list<Hold>::iterator> take_place(const Caller& caller, const Weight& wanted);
  void drop_left_over();                                  // as remove_left_over()
  [[nodiscard]] std::size_t places_on_their_way() const;  // with the lock held
  // Room on the disk, as long as the place is kept: what is free of the caller's quota, `bound` at
  // the most.
  struct DiskRoom {
    std::shared_ptr<Place> place;
    Most bytes;
  };
  Result<DiskRoom> hold_disk(const Caller& caller, std::uint64_t bound);
  std::string owner_of(const std::string& id);
  // What the owner has, those on their way included. With both locks held.
  Result<Weight> weight_of_owner(const std::string& owner, const std::vector<std::string>& live);
  [[nodiscard]] bool belongs(const Caller& caller, const std::string& id);
  Result<std::optional<storage::SandboxRow>> row_of(const std::string& id);
  Result<Visit> connect_to(storage::BoxRecord record);
  // The record of one that is the caller's and has not ended.
  enum class Rest { kLeft, kWoken };
  Result<storage::BoxRecord> live_record(const Caller& caller, const std::string& id, Rest rest);
  bool wakes_by_use(const std::string& id);
  Status enter(const std::string& id);
  void leave(const std::string& id);
  // A stream that an earlier visit left; nothing: there is none that is still connected.
  std::optional<sandbox::GuestStream> kept_stream(const std::string& id);

  storage::Home home_;
  ManagerOptions options_;
  native::WarmSupply warm_;
  std::mutex database_mutex_;  // for the three connections
  storage::State state_;
  Ledger ledger_;
  storage::WorkspaceRecords workspaces_;
  std::mutex mutex_;  // for what follows; never held while anybody waits
  std::map<std::string, std::string> owners_;
  std::map<std::string, std::size_t> visits_;
  std::set<std::pair<std::string, std::uint16_t>> public_ports_;
  std::map<std::string, sandbox::GuestStream> kept_;  // one for a sandbox, which saves a greeting
  std::set<std::string> making_;                      // ids of sandboxes on their way
  std::list<Hold> holds_;                             // their places
  std::map<std::string, Weight> weights_;             // of those that run, as far as it is known
  std::set<std::string> keys_;                        // in use
  struct IdleRule {
    policy::OnIdle what = policy::OnIdle::kNothing;
    std::int64_t after_ms = 0;
    std::int64_t created_ms = 0;
  };
  void rest(const std::string& id, const IdleRule& rule);
  std::map<std::string, IdleRule> idle_rules_;  // for the one thread that calls rest_idle()
};

}  // namespace carrel::manager
