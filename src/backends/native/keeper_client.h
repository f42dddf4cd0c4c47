#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "backends/native/creation.h"
#include "backends/native/keeper_message.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::native {

// Whether a keeper of this installation is running. It is not disturbed by the question.
bool keeper_is_alive(const storage::Home& home);
// The lock that says so. kConflict when there is another keeper.
Result<UniqueFd> lock_keeper(const storage::Home& home);

// Told the id that a sandbox will have, before anything of it exists; an error ends the making.
using IdChosen = std::function<Status(const std::string& id)>;

class WarmSupply;

// What is at hand of a sandbox that was warm and that this process has finished itself.
struct MadeHere {
  std::optional<Creation::Finished> finished;
};

// Has the keeper make a sandbox and returns its id; `request.id` is chosen here, and another one if
// a keeper dies over the first, unless it is one that was stopped. Starts the keeper,
// as `program keeper`, when none is running, and a new one if that dies on the way. The sandbox is
// stored and running when this returns. With a supply it is one of those that are warm, if one of
// them is there and will do.
Result<std::string> create_sandbox(storage::Home& home, CreateRequest request,
                                   const IdChosen& chosen = {}, WarmSupply* supply = nullptr,
                                   MadeHere* here = nullptr);

// A connection to the keeper, started if there is none, that has it keep sandboxes warm.
Result<UniqueFd> hold_warm(const storage::Home& home, const KeepWarm& wish);
// One of them, when something has come on that connection.
struct WarmNews {
  std::string id;
  std::optional<Offer> offer;  // none: the keeper has it
};
Result<WarmNews> hear_warm(int keeper);

// Gives the keeper a watch over the workspace of a sandbox to keep. It is lost where no keeper
// runs.
void keep_watch(const storage::Home& home, const std::string& id, storage::KeptWatch watch);
// Gets it back, if there is one and nothing in the sandbox, which stands still, can change a
// file of that file system without its being told.
std::optional<storage::KeptWatch> take_watch(const storage::Home& home, const std::string& id);

}  // namespace carrel::native
