#pragma once

#include <optional>

#include "base/result.h"
#include "policy/spec.h"
#include "storage/home.h"
#include "storage/images/image_use.h"

namespace carrel::manager {

// What somebody chose, so that an image has no say in it.
enum class Choice { kDefault, kGiven };
struct Chosen {
  Choice workdir = Choice::kDefault;
  Choice user = Choice::kDefault;
};

// Puts the directory of the imported image that the spec names, if it names one, in the place of
// its name, and what the image asks for below what the operator said: variables, the user, who is
// never root, and the directory to start in if there is one. The result has to live as long as the
// sandbox is being made or, for a one-shot, runs: until then nobody can remove the image.
Result<std::optional<storage::UsedImage>> resolve_image(const storage::Home& home,
                                                        const Chosen& chosen, policy::Spec& spec);

}  // namespace carrel::manager
