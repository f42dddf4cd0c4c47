#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace carrel::storage {

// Whom an image wants to run as.
struct ImageUser {
  std::string name;  // as its /etc/passwd has it; empty: none that can be used
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;  // zero: none, or root's
};

// What the USER of an image means: NAME, NUMBER, NAME:GROUP or NUMBER:GROUP, by the files below the
// directory `root`, which are a stranger's: no link is followed, and they are read up to a size.
// Nobody if it is empty or root, under whichever name: a sandbox has no root. kNotFound if the
// image does not know the name.
Result<std::optional<ImageUser>> resolve_user(int root, const std::string& user);

}  // namespace carrel::storage
