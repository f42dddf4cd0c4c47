#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::storage {

// What a client needs to reach a long-lived sandbox, in run/box/ID/record: small enough that a
// command pays nothing for it. The database has the rest.
struct BoxRecord {
  std::string id;
  std::string name;
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // of the guest, clock ticks since boot
  std::string boot_id;
  std::int64_t timeout_ms = 0;  // the default of its commands
  std::string workdir;
  std::string cgroup_parent;

  bool operator==(const BoxRecord&) const = default;
};

// In two steps: a draft while its maker could still take it back, and the record that everybody
// sees once it cannot. A sandbox with a draft only has no future: whoever finds it ends it.
Status write_draft(const Home& home, const BoxRecord& record);
// As if it had been written now: its time is when the sandbox was last used.
Status touch_draft(const Home& home, const std::string& id);
Status publish_draft(const Home& home, const std::string& id);
Result<BoxRecord> read_draft(const Home& home, const std::string& id);
Result<BoxRecord> read_record(const Home& home, const std::string& id);

// Finds the sandbox that a person means: its id, its name, or the beginning of its id if no other
// begins so. kNotFound: "Sandbox x not found".
Result<BoxRecord> find_box(const Home& home, const std::string& named);
std::vector<std::string> box_ids(const Home& home);
// "Sandbox x not found"
Error no_such_box(const std::string& named);

// Whether the process of the record is still the one that it names.
bool is_alive(const BoxRecord& record);

// A process's start time in clock ticks since boot; 0 when there is no such process.
std::uint64_t start_time_of(pid_t pid);
std::string boot_id();

// A sandbox that is being made: run/box/ID with the guest's socket bound in it, on which the guest
// will listen, and the lock of the directory. Until that is let go of, nobody sweeps it away.
struct NewBox {
  UniqueFd lock;
  UniqueFd socket;
};
Result<NewBox> make_box(const Home& home, const std::string& id);

// Where the control groups of a sandbox are that has no record yet; empty: where they are without
// being told.
Status note_groups(const Home& home, const std::string& id, const std::string& parent);
std::string noted_groups(const Home& home, const std::string& id);

// The lock of run/box/ID, which everybody holds who makes, ends or buries the sandbox. kNotFound
// when there is no such box (any more), kConflict when another holds it for longer than that.
Result<UniqueFd> lock_box(const Home& home, const std::string& id, int patience_ms);

// That the sandbox is meant to end, and why: whoever finds it finishes what the writer began.
Status note_end(const Home& home, const std::string& id, const std::string& reason);
// Empty when no end was noted.
std::string noted_end(const Home& home, const std::string& id);

// That the sandbox is stopped, and not ended, when its box goes: somebody stops it, or it is being
// started again.
Status note_stop(const Home& home, const std::string& id, Wake wake);
Status drop_stop(const Home& home, const std::string& id);
std::optional<Wake> noted_stop(const Home& home, const std::string& id);

// How a sandbox with a workspace of a name was asked for, with all its values, as long as it has
// not ended: so that it can be started again. A private file. One that is not synced is when the
// sandbox is stopped; a sandbox that is made again after it died may need it sooner.
Status put_wish(const Home& home, const std::string& id, const std::string& text, Lasting lasting);
Result<std::string> read_wish(const Home& home, const std::string& id);
void drop_wish(const Home& home, const std::string& id);
// Drops those that belong to no sandbox, unless they are new.
void sweep_wishes(const Home& home, const std::vector<std::string>& live_ids);

// Connects to the socket and checks that the guest of the record answers there.
Result<UniqueFd> connect_box(const Home& home, const BoxRecord& record);
Status remove_box(const Home& home, const std::string& id);

// Whether the text has the form of an id that make_id() gives.
bool is_id(std::string_view text);

}  // namespace carrel::storage
