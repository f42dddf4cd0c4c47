#pragma once

#include <cstddef>
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

class WarmSupply;

// Has the keeper make a sandbox and returns its id; `request.id` is chosen here, and another one if
// a keeper dies over the first, unless it is one that was stopped. Starts the keeper,
// as `program keeper`, when none is running, and a new one if that dies on the way. The sandbox is
// stored and running when this returns. With a supply it is one of those that are warm, if one of
// them is there and will do.
Result<std::string> create_sandbox(storage::Home& home, CreateRequest request,
                                   const IdChosen& chosen = {}, WarmSupply* supply = nullptr);

// A connection to the keeper, started if there is none, that has it keep so many sandboxes warm.
Result<UniqueFd> hold_warm(const storage::Home& home, std::size_t count);
// The id of one of them, when something has come on that connection.
Result<std::string> hear_warm(int keeper);

}  // namespace carrel::native
