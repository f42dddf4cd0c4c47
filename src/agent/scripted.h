#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "agent/model.h"

namespace carrel::agent {

// A model whose answers are in a file, TOML or JSON: for tests, demonstrations, and for seeing what
// an agent would do. It has [[turns]], each with [[turns.replies]] of `text` and `calls`, a list of
// {name, arguments}; `arguments` is an object, or a text that is taken as it is. Which reply is due
// is told by the conversation alone, so that one that was interrupted goes on where it was.
Result<std::unique_ptr<Model>> make_scripted_model(std::string_view text, std::string_view path);

}  // namespace carrel::agent
