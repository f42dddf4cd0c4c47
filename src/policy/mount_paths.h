#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::policy {

// The paths and names that the mount policy knows. All of these look at text only.

// Whether `path` is `root` or below it, component by component: "/data" holds "/data/x" and not
// "/data2", and "/" holds everything. Both are absolute and normalized.
bool path_holds(std::string_view root, std::string_view path);

// An absolute path as short as it goes, ".." folded with the name before it. Links are not known
// here, so this is where a path seems to lead, not where it does.
std::string folded_path(std::string_view path);

// `name` below `folder`, with one slash between them.
std::string path_below(std::string_view folder, std::string_view name);

// Whether a file or folder of this name is likely to hold credentials: `.ssh`, `.env`, `id_rsa` and
// their like, with the endings they are seen with. Names that begin with a dot match in any case of
// letters.
bool is_credential_name(std::string_view name);

// The first component of the path that is such a name; empty if there is none.
std::string_view credential_in(std::string_view path);

// Whether files of this type (as mountinfo names it) are the kernel's own and no data.
bool is_kernel_file_system(std::string_view type);

// How far a forbidden path forbids.
enum class Reach {
  kBelowAndAbove,    // the path, everything below it and everything that contains it
  kAbove,            // the path and what contains it
  kAboveIfWritable,  // the path and, where it would be writable, what contains it
};

struct ForbiddenPath {
  std::string path;
  Reach reach = Reach::kBelowAndAbove;
};

// What no list and nobody can grant: the system's accounts, keys, devices and sockets, and what
// programs keep for their user in each of `homes`.
std::vector<ForbiddenPath> forbidden_paths(std::span<const std::string> homes);

}  // namespace carrel::policy
