#pragma once

#include <string>

#include "base/result.h"
#include "sandbox/walls.h"
#include "storage/box.h"
#include "storage/home.h"

// What crashes and ends leave behind, and who takes it away: everybody. What belongs to a sandbox
// is made after its mark (run/once/ID or run/box/ID) and removed before it, so whatever carries an
// id without a mark is nobody's; and a mark whose lock is free has no owner any more.
namespace carrel::native {

// Ends a long-lived sandbox: asks its processes to stop, ends them after `grace_ms`, and removes
// everything that belongs to it. Calling it again is fine. If the caller is killed on the way, the
// next sweep_boxes() finishes it.
Status remove_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                      const std::string& reason);

// The same, but it is stopped afterwards and can be started again.
Status stop_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                    const std::string& reason, storage::Wake wake);

// How the first process of a sandbox ended, as far as its parent could see.
struct Ending {
  std::string reason;
  enum class How {
    kOver,  // as it should: it was told to, its lease ran out, or it was never whole
    kDied,
  } how = How::kOver;
};

// By what wait() says.
Ending ending_of(int status);

// Removes what is left of a long-lived sandbox whose first process is gone, or that was never
// finished, and notes why it ended (an end that was noted before has the say). One that died and is
// to be made again is stopped, until somebody uses it. Does as much as it can and returns the first
// error. kConflict when somebody else is at it for longer than `patience_ms`; a box that is gone is
// fine.
Status bury(storage::Home& home, const std::string& id, const Ending& ending, int patience_ms);

// For a home that was removed (Home::is_removed): ends the first process of that sandbox, and with
// it everything in it, and removes what of it is outside of the home.
void end_without_home(storage::Home& home, const std::string& id, const UniqueFd& process);

// Removes what killed `carrel run`s left.
void sweep_one_shots(storage::Home& home);

// Everything: one-shots, long-lived sandboxes that have ended, were half made or half removed, rows
// of the database without a sandbox, control groups, ids and temporary files without an owner.
// Costs a look at each sandbox. A command leaves a sandbox that has just ended to the keeper for a
// moment, because that knows best why it ended.
enum class Sweeper { kCommand, kKeeper };
void sweep_boxes(storage::Home& home, Sweeper who = Sweeper::kCommand);

// For commands that must be quick: one-shots, and long-lived sandboxes only when there is no keeper
// that would have seen to them.
void sweep_quickly(storage::Home& home);

// What whoever was making a sandbox behind somebody else's walls left there.
void sweep_walls(const storage::Home& home, sandbox::FindWalls find_walls);

}  // namespace carrel::native
