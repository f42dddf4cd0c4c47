#include "backends/native/image_home.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "base/open_below.h"
#include "policy/mount_paths.h"
#include "policy/names.h"

namespace carrel::native {

namespace {

constexpr std::string_view kImageDirectory = "dir:";
constexpr std::size_t kLargestImagePasswd = 1U << 20;

// What is no home, whatever an image says: the sandbox has its own there, or it is the system's.
constexpr std::array<std::string_view, 16> kNoHomes = {
    "/proc", "/sys", "/dev",   "/tmp",   "/run",    "/etc",  "/usr",       "/bin",
    "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/workspace", "/mnt",
};

bool has_mapped_layers() {
  struct utsname names{};
  if (::uname(&names) != 0) {
    return false;
  }
  char* end = nullptr;
  const unsigned long major = std::strtoul(names.release, &end, 10);
  const unsigned long minor = *end == '.' ? std::strtoul(end + 1, nullptr, 10) : 0;
  return major > 5 || (major == 5 && minor >= 19);
}

// "name:password:uid:gid:comment:home:shell" of the user or, if there is none, of root.
std::string home_in(std::string_view passwd, const policy::Spec& spec) {
  std::string roots = "/root";
  while (!passwd.empty()) {
    std::string_view line = passwd.substr(0, passwd.find('\n'));
    passwd.remove_prefix(std::min(line.size() + 1, passwd.size()));
    std::array<std::string_view, 7> fields;
    for (std::string_view& field : fields) {
      field = line.substr(0, line.find(':'));
      line.remove_prefix(std::min(field.size() + 1, line.size()));
    }
    if (fields[0] == spec.user && fields[2] == std::to_string(spec.user_id)) {
      return std::string(fields[5]);
    }
    if (fields[0] == "root") {
      roots = fields[5];
    }
  }
  return roots;
}

bool can_be_home(const std::string& path) {
  const auto normal = policy::normalize_path({"home", path});
  return normal.ok() && normal.value() == path && path != "/" &&
         std::none_of(kNoHomes.begin(), kNoHomes.end(),
                      [&](std::string_view place) { return policy::path_holds(place, path); });
}

// Where the host has what is open; empty if nowhere.
std::string path_of(const UniqueFd& open) {
  std::array<char, PATH_MAX> text{};
  const std::string link = "/proc/self/fd/" + std::to_string(open.get());
  const ssize_t n = ::readlink(link.c_str(), text.data(), text.size());
  return n > 0 && text[0] == '/' ? std::string(text.data(), static_cast<std::size_t>(n))
                                 : std::string();
}

}  // namespace

bool is_image_home(const GivenTree& tree) {
  return tree.overlay.has_value() && tree.overlay->upper.empty();
}

const std::string& place_of(const GivenTree& image_home) { return image_home.overlay->place; }

bool shows_image_home(const policy::Spec& spec) {
  static const bool mapped = has_mapped_layers();
  return !spec.image_name.empty() && spec.image.starts_with(kImageDirectory) &&
         spec.backend == policy::Backend::kNative && mapped;
}

Status add_image_home(const policy::Spec& spec, std::vector<GivenTree>& trees) {
  const std::string target = "/home/" + spec.user;
  const bool covered = std::any_of(trees.begin(), trees.end(), [&](const GivenTree& tree) {
    return policy::path_holds(tree.target, target);
  });
  if (covered || !shows_image_home(spec)) {
    return {};
  }
  CARREL_ASSIGN(const UniqueFd top,
                open_at(AT_FDCWD, spec.image.substr(kImageDirectory.size()), O_PATH | O_DIRECTORY));
  std::string passwd;
  const auto file = open_below(top.get(), "etc/passwd", O_RDONLY | O_NONBLOCK);
  struct stat info{};
  if (file.ok() && ::fstat(file.value().get(), &info) == 0 && S_ISREG(info.st_mode)) {
    auto text = read_all(file.value().get(), kLargestImagePasswd);
    passwd = text.ok() ? std::move(text.value()) : std::string();
  }
  const std::string home = home_in(passwd, spec);
  if (!can_be_home(home)) {
    return {};
  }
  auto found = open_below(top.get(), home.substr(1), O_PATH | O_DIRECTORY);
  if (!found.ok() || ::fstat(found.value().get(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return {};
  }
  GivenTree tree;
  tree.source = std::move(found.value());
  tree.path = path_of(tree.source);
  tree.target = target;
  tree.owner = {info.st_uid, info.st_gid};
  tree.overlay.emplace();
  tree.overlay->place = home;
  if (!tree.path.empty()) {
    trees.insert(trees.begin(), std::move(tree));
  }
  return {};
}

}  // namespace carrel::native
