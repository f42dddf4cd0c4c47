#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "policy/given.h"
#include "policy/spec.h"

namespace carrel::policy {

// The shapes of the words a sandbox is described with. All of these are pure: they look at the text
// only, never at the file system.

// Names of sandboxes and sessions, ids included: a letter or digit, then letters, digits, '_', '.'
// and '-'; at most 64 bytes. Never a path, so it can be used as a file name.
Status check_name(const Given& given);

// Names of images, as `name:tag` and `host/folder/name:tag`: letters, digits, '_', '.' and '-' in
// parts that begin with a letter or digit and are joined by '/' or ':'; at most 200 bytes.
Status check_image_name(const Given& given);

// The same, or with "@sha256:" and 64 hex digits behind it: the image of that digest and no other.
Status check_image_reference(const Given& given);

// An absolute path without "..", as short as it goes: "/a//b/./c/" becomes "/a/b/c".
Result<std::string> normalize_path(const Given& given);

// Labels of letters, digits and inner '-', joined by dots; at most 63 bytes.
Status check_hostname(const Given& given);

// A name for the user inside: a lower-case letter or '_', then those, digits and '-'; at most 32.
Status check_user_name(const Given& given);

// The largest "NAME=VALUE" that the kernel takes at exec, its end included.
inline constexpr std::size_t kLongestVariable = 128 << 10;

// "NAME=VALUE" with a name of letters, digits and '_'. The value may be any bytes but NUL and may
// be empty. An error shows the name and never the value, which can be a secret.
Result<EnvironmentVariable> parse_variable(const Given& given);

}  // namespace carrel::policy
