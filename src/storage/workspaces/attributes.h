#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::storage {

// The extended attributes of a file or directory that are its user's ("user."), as one word:
// sorted, NAME=VALUE with a comma between two, bytes other than letters, digits and ._-/ as %XX.
// Empty: none. Names of other kinds are the system's and those of overlays ("user.overlay.") the
// layers'; neither is read or written. What is beyond these bounds is left out.
inline constexpr std::size_t kMostAttributes = 32;
inline constexpr std::size_t kMostAttributeBytes = 2048;  // ext4 has one block for all of them

// `fd` is open for reading. Where there are no attributes at all, the text is empty.
std::string read_attributes(int fd);

// Gives it these and no others. A file system that has none is fine.
Status write_attributes(int fd, const std::string& text, const std::string& path);

// Whether it is a text that read_attributes() could have given.
bool are_attributes(std::string_view text);

}  // namespace carrel::storage
