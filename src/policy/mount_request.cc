#include "policy/mount_request.h"

#include <algorithm>
#include <array>
#include <span>

#include "policy/mount_paths.h"
#include "policy/names.h"

namespace carrel::policy {
namespace {

constexpr std::size_t kLongestSource = 4095;

// What a sandbox is made of. Nothing is mounted on these, in them or around them.
constexpr std::array<std::string_view, 15> kOwn = {
    "/proc", "/sys", "/dev",     "/usr",     "/bin",
    "/sbin", "/lib", "/lib32",   "/lib64",   "/libx32",
    "/boot", "/run", "/var/run", "/var/tmp", "/workspace/code",
};

// What of /etc Carrel writes itself.
constexpr std::array<std::string_view, 9> kOwnEtc = {
    "/etc/passwd",     "/etc/group", "/etc/hosts",         "/etc/hostname",   "/etc/resolv.conf",
    "/etc/machine-id", "/etc/mtab",  "/etc/nsswitch.conf", "/etc/os-release",
};

const std::string_view* own_place(std::string_view path) {
  for (const auto& places :
       {std::span<const std::string_view>(kOwn), std::span<const std::string_view>(kOwnEtc)}) {
    for (const std::string_view& place : places) {
      if (path_holds(place, path) || (path_holds(path, place) && path != "/workspace")) {
        return &place;
      }
    }
  }
  return nullptr;
}

Status check_source(const Given& given) {
  if (given.text.empty()) {
    return bad_value(given, "the host's path is empty", "name a folder or a file");
  }
  if (given.text.find('\0') != std::string_view::npos) {
    return bad_value(given, "contains a NUL byte");
  }
  if (given.text.size() > kLongestSource) {
    return bad_value(given, "longer than a path can be");
  }
  if (given.text == "~" || given.text.starts_with("~/")) {
    return bad_value(given, "'~' is not expanded here",
                     "write the whole path, or ./~ for that name");
  }
  return {};
}

}  // namespace

Result<Mount> parse_mount(const Given& given) {
  Mount mount;
  std::string_view rest = given.text;
  if (rest.ends_with(":rw")) {
    mount.mode = MountMode::kReadWrite;
    rest.remove_suffix(3);
  } else if (rest.ends_with(":ro")) {
    rest.remove_suffix(3);
  }
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) {
    return bad_value(given, "not a mount", "write SRC:DST, or SRC:DST:rw to let it be changed");
  }
  const std::string_view target = rest.substr(colon + 1);
  CARREL_TRY(check_source({given.name, rest.substr(0, colon)}));
  CARREL_TRY(check_mount_target({given.name, target}));
  mount.source = rest.substr(0, colon);
  mount.target = target;
  return mount;
}

Result<std::string> absolute_source(const Given& given, std::string_view cwd) {
  CARREL_TRY(check_source(given));
  if (given.text.starts_with('/')) {
    return std::string(given.text);
  }
  return path_below(cwd, given.text);
}

Status check_mount_target(const Given& given) {
  if (!given.text.starts_with('/')) {
    return bad_value(given, "the place inside must be an absolute path",
                     "SRC:DST[:rw], DST as /data");
  }
  CARREL_ASSIGN(const std::string path, normalize_path(given));
  if (path != given.text) {
    return bad_value(given, "the place inside is not written as short as it goes",
                     concat({"write ", quote(path)}));
  }
  if (path.find(':') != std::string::npos) {
    return bad_value(given, "the place inside contains a ':'");
  }
  if (path == "/") {
    return bad_value(given, "nothing is mounted over the root");
  }
  if (const std::string_view* const own = own_place(path); own != nullptr) {
    return bad_value(
        given,
        concat({path_holds(*own, path) ? "nothing is mounted over " : "it would cover ", *own}),
        "choose a place such as /data, /workspace/data or /etc/name");
  }
  return {};
}

Status check_mounts(const std::vector<Mount>& mounts) {
  for (auto one = mounts.begin(); one != mounts.end(); ++one) {
    CARREL_TRY(check_source({"mount", one->source}));
    CARREL_TRY(check_mount_target({"mount", one->target}));
    for (auto other = mounts.begin(); other != one; ++other) {
      if (one->target == other->target) {
        return bad_value({"mount", one->target}, "two mounts have this place inside");
      }
      if (path_holds(one->target, other->target) || path_holds(other->target, one->target)) {
        return bad_value({"mount", one->target},
                         concat({"one mount would be inside another, ", quote(other->target)}));
      }
    }
  }
  return {};
}

Result<std::string> parse_allowed_path(const Given& given) {
  if (given.text.empty()) {
    return bad_value(given, "an empty path would be the folder carrel happens to run in",
                     "name a folder, or leave it out");
  }
  if (given.text.starts_with('~')) {
    return bad_value(given, "'~' is not expanded here", "write the whole path");
  }
  return normalize_path(given);
}

}  // namespace carrel::policy
