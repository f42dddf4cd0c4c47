#pragma once

#include <functional>
#include <string>

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

// Has the keeper make a sandbox and returns its id; `request.id` is chosen here, and another one if
// a keeper dies over the first, unless it is one that was stopped. Starts the keeper,
// as `program keeper`, when none is running, and a new one if that dies on the way. The sandbox is
// stored and running when this returns.
Result<std::string> create_sandbox(storage::Home& home, CreateRequest request,
                                   const IdChosen& chosen = {});

}  // namespace carrel::native
