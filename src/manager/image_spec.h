#pragma once

#include <optional>

#include "base/result.h"
#include "policy/spec.h"
#include "storage/home.h"
#include "storage/images/image_use.h"

namespace carrel::manager {

// Whether somebody chose the directory to start in.
enum class Workdir { kDefault, kGiven };

// Puts the directory of the imported image that the spec names, if it names one, in the place of
// its name, and what the image asks for below what the operator said: variables, and the directory
// to start in if there is one. The user that an image names is not followed: nothing in a sandbox
// is root, and there is one user. The result has to live as long as the sandbox is being made or,
// for a one-shot, runs: until then nobody can remove the image.
Result<std::optional<storage::UsedImage>> resolve_image(const storage::Home& home,
                                                        Workdir workdir,
                                                        policy::Spec& spec);

}  // namespace carrel::manager
