#include "storage/user_homes.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "base/files.h"
#include "policy/mount_paths.h"

namespace carrel::storage {

namespace {

constexpr unsigned kFirstPerson = 1000;
constexpr std::size_t kLargestPasswd = 16U << 20;

enum class Whose { kPeople, kServices };

// "name:password:uid:gid:comment:home:shell"
std::vector<std::string> homes_in(std::string_view passwd, Whose whose) {
  std::vector<std::string> homes;
  while (!passwd.empty()) {
    std::string_view line = passwd.substr(0, passwd.find('\n'));
    passwd.remove_prefix(std::min(line.size() + 1, passwd.size()));
    std::array<std::string_view, 7> fields;
    for (std::string_view& field : fields) {
      field = line.substr(0, line.find(':'));
      line.remove_prefix(std::min(field.size() + 1, line.size()));
    }
    unsigned uid = 0;
    const auto parsed = std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), uid);
    // Whoever cannot be told is taken for a person.
    const bool person = parsed.ec != std::errc() || uid == 0 || uid >= kFirstPerson;
    if (fields[5].starts_with('/') && person == (whose == Whose::kPeople)) {
      homes.push_back(policy::folded_path(fields[5]));
    }
  }
  return homes;
}

bool exists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

bool holds_credentials(const std::string& home) {
  for (const std::string_view name : {".ssh", ".aws", ".gnupg", ".kube", ".docker"}) {
    if (exists(policy::path_below(home, name))) {
      return true;
    }
  }
  return false;
}

struct CloseHomes {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

void add_folders_of(const std::string& parent, std::vector<std::string>& homes) {
  const std::unique_ptr<DIR, CloseHomes> entries(::opendir(parent.c_str()));
  while (entries) {
    const dirent* entry = ::readdir(entries.get());
    if (entry == nullptr) {
      break;
    }
    if (entry->d_name[0] != '.' &&
        (entry->d_type == DT_DIR || entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN)) {
      homes.push_back(policy::path_below(parent, entry->d_name));
    }
  }
}

void add_real_paths(std::vector<std::string>& homes) {
  const std::size_t named = homes.size();
  for (std::size_t i = 0; i < named; ++i) {
    std::array<char, PATH_MAX> real{};
    if (::realpath(homes[i].c_str(), real.data()) != nullptr) {
      homes.emplace_back(real.data());
    }
  }
}

}  // namespace

std::vector<std::string> homes_of_people(std::string_view passwd) {
  return homes_in(passwd, Whose::kPeople);
}

std::vector<std::string> homes_of_services(std::string_view passwd) {
  return homes_in(passwd, Whose::kServices);
}

Result<std::vector<std::string>> user_homes() {
  std::vector<std::string> homes;
  auto passwd = read_file_at(AT_FDCWD, "/etc/passwd", kLargestPasswd);
  if (passwd.ok()) {
    homes = homes_of_people(passwd.value());
    for (std::string& home : homes_of_services(passwd.value())) {
      if (holds_credentials(home)) {
        homes.push_back(std::move(home));
      }
    }
  } else if (passwd.error().error_number != ENOENT) {
    return passwd.error();
  }
  homes.emplace_back("/root");  // also where passwd does not know it, as in small containers
  if (const char* own = std::getenv("HOME"); own != nullptr && *own == '/') {
    homes.push_back(policy::folded_path(own));
  }
  add_folders_of("/home", homes);
  add_real_paths(homes);
  std::sort(homes.begin(), homes.end());
  homes.erase(std::unique(homes.begin(), homes.end()), homes.end());
  std::erase(homes, "/");
  return homes;
}

}  // namespace carrel::storage
