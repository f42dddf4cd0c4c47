#include "backends/native/host_etc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/files.h"
#include "base/unique_fd.h"
#include "policy/mount_paths.h"

namespace carrel::native {

namespace {

// Folders of /etc, and what is shown in each: files, and with a slash behind them folders as a
// whole, into which nobody has a reason to write a password. CRITICAL: a name that is not here is
// not in a sandbox.
//
// Of what programs keep in /etc these are left out, because people write passwords, tokens and keys
// into them that everybody may read: apt, chromium.d/apikeys, curlrc, environment, fstab,
// gitconfig, ImageMagick-* (the secret of its cache), the management of java-*
// (jmxremote.password), ldap, maven/settings.xml, mysql, npmrc, odbc.ini, php, pip.conf, profile,
// profile.d, bash.bashrc, R's Renviron.site and Rprofile.site, subversion, wgetrc. What programs
// start without is left out as well, because each name costs every start some time: ld.so.conf and
// ld.so.conf.d (what they say is in ld.so.cache), default/locale and locale.conf (it is in LANG),
// python*, perl, groff, terminfo (what is in /usr is enough), debian_version.
struct Rows {
  std::string_view folders;  // several that have the same; "" is /etc itself
  std::string_view names;
};
constexpr auto kTable = std::to_array<Rows>({
    // Which program is meant, where libraries are, what time it is, what names and numbers mean.
    {"",
     "alternatives/ ld.so.cache localtime timezone services protocols mime.types inputrc "
     "manpath.config fonts/"},
    {"ssl", "certs/ openssl.cnf"},
    {"chromium.d", "default-flags extensions"},
    {"java-8-openjdk java-11-openjdk java-17-openjdk java-21-openjdk java-25-openjdk",
     "jvm-amd64.cfg jvm-arm64.cfg jvm-aarch64.cfg logging.properties net.properties security/"},
    {"libreoffice", "sofficerc psprint.conf registry/"},
    {"maven", "m2.conf"},
    {"maven/logging", "simplelogger.properties"},
    {"R", "ldpaths Renviron Makeconf repositories"},
});

// What is not larger is copied, which costs a sandbox less than a mount.
constexpr off_t kLargestText = 8192;
constexpr std::size_t kLongestTarget = 1024;

// Calls `visit` with each word.
template <typename Visit>
void each_word(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    visit(word);
  }
}

bool is_in_table(std::string_view name) {
  bool found = false;
  for (const Rows& rows : kTable) {
    each_word(rows.folders.empty() ? std::string_view(".") : rows.folders, [&](auto folder) {
      each_word(rows.names, [&](std::string_view row) {
        std::string whole(folder == "." ? std::string_view() : folder);
        whole += whole.empty() ? "" : "/";
        whole += row;
        const bool inside = whole.ends_with('/') && name.starts_with(whole);
        found = found || inside || whole == name;
      });
    });
  }
  return found;
}

class EtcReader {
 public:
  explicit EtcReader(const std::string& etc)
      : top_(::open(etc.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    there_ = top_.valid() && ::fstat(top_.get(), &owner_) == 0;
  }

  HostEtc read() {
    for (const Rows& rows : kTable) {
      if (rows.folders.empty()) {
        read_folder({}, rows.names);
      }
      each_word(rows.folders, [&](std::string_view folder) { read_folder(folder, rows.names); });
    }
    return std::move(found_);
  }

 private:
  // CRITICAL: who else could write to it would choose what sandboxes see. On a host whose root is
  // nobody here, as in a container, that is whoever /etc belongs to.
  [[nodiscard]] bool is_trusted(const struct stat& info) const {
    return info.st_uid == owner_.st_uid &&
           (S_ISLNK(info.st_mode) || (info.st_mode & (S_IWGRP | S_IWOTH)) == 0);
  }

  [[nodiscard]] bool look(const char* name, struct stat& info) const {
    return ::fstatat(top_.get(), name, &info, AT_SYMLINK_NOFOLLOW) == 0 && is_trusted(info);
  }

  // A real folder, and so is everything above it.
  [[nodiscard]] bool is_folder(std::string_view name) const {
    for (std::size_t at = name.find('/');; at = name.find('/', at + 1)) {
      struct stat info{};
      if (!look(std::string(name.substr(0, at)).c_str(), info) || !S_ISDIR(info.st_mode)) {
        return false;
      }
      if (at == std::string_view::npos) {
        return true;
      }
    }
  }

  void read_folder(std::string_view folder, std::string_view names) {
    if (!there_ || (!folder.empty() && !is_folder(folder))) {
      return;
    }
    each_word(names, [&](std::string_view name) {
      const bool whole = name.ends_with('/');
      std::string path(folder);
      path += path.empty() ? "" : "/";
      path += whole ? name.substr(0, name.size() - 1) : name;
      read_entry(path, whole);
    });
  }

  void read_entry(const std::string& path, bool whole) {
    constexpr mode_t kForAll = S_IROTH;
    constexpr mode_t kOpenForAll = S_IROTH | S_IXOTH;
    struct stat info{};
    if (!look(path.c_str(), info)) {
      return;
    }
    if (S_ISLNK(info.st_mode)) {
      add_link(path);
    } else if (whole && S_ISDIR(info.st_mode) && (info.st_mode & kOpenForAll) == kOpenForAll) {
      found_.folders.push_back(path);
      note(info);
    } else if (!whole && S_ISREG(info.st_mode) && (info.st_mode & kForAll) != 0) {
      if (info.st_size > kLargestText || !add_text(path)) {
        found_.files.push_back(path);
        note(info);
      }
    }
  }

  // A link leads to what the sandbox has. It is shown where that can be the same as on the host.
  void add_link(const std::string& path) {
    std::array<char, kLongestTarget> text{};
    const ssize_t n = ::readlinkat(top_.get(), path.c_str(), text.data(), text.size());
    if (n <= 0 || static_cast<std::size_t>(n) == text.size()) {
      return;
    }
    const std::string target(text.data(), static_cast<std::size_t>(n));
    constexpr std::string_view kEtc = "/etc/";
    const std::string parent = "/etc/" + path.substr(0, path.rfind('/') + 1);
    const std::string leads =
        policy::folded_path(target.starts_with('/') ? target : parent + target);
    if (policy::path_holds("/usr", leads) ||
        (leads.starts_with(kEtc) && is_in_table(leads.substr(kEtc.size())))) {
      found_.links.emplace_back(path, target);
    }
  }

  bool add_text(const std::string& path) {
    const UniqueFd file(
        ::openat(top_.get(), path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    std::array<char, kLargestText + 1> text;
    const ssize_t n = file.valid() ? ::read(file.get(), text.data(), text.size()) : -1;
    if (n < 0 || n > kLargestText) {
      return false;
    }
    found_.texts.emplace_back(path, std::string(text.data(), static_cast<std::size_t>(n)));
    return true;
  }

  void note(const struct stat& info) {
    found_.sources += std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) + " ";
  }

  UniqueFd top_;
  bool there_ = false;
  struct stat owner_{};
  HostEtc found_;
};

// The value of the line that begins with "LANG="; empty if there is none that could be one.
std::string language_in(std::string_view text) {
  std::string found;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    constexpr std::string_view kName = "LANG=";
    if (!line.starts_with(kName)) {
      continue;
    }
    line.remove_prefix(kName.size());
    if (line.size() >= 2 && line.front() == '"' && line.back() == '"') {
      line = line.substr(1, line.size() - 2);
    }
    found = line;
  }
  const bool plain = std::all_of(found.begin(), found.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == '@';
  });
  return plain && found.size() < 64 ? found : std::string();
}

// "de_DE.UTF-8@euro" as its data is called: "de_DE.utf8@euro". Empty if it is not of UTF-8.
std::string name_of_data(const std::string& language) {
  const std::size_t dot = language.find('.');
  if (dot == std::string::npos || dot == 0) {
    return {};
  }
  const std::size_t at = std::min(language.find('@', dot), language.size());
  std::string codes;
  for (const char c : language.substr(dot + 1, at - dot - 1)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      codes += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return codes == "utf8" ? language.substr(0, dot) + ".utf8" + language.substr(at) : std::string();
}

// The head of glibc's locale-archive (localearchive.h): its names lie in one place.
struct ArchiveHead {
  std::uint32_t magic;
  std::uint32_t serial;
  std::uint32_t hash_offset;
  std::uint32_t hash_used;
  std::uint32_t hash_size;
  std::uint32_t string_offset;
  std::uint32_t string_used;
  std::uint32_t string_size;
};

bool is_in_archive(const std::string& path, const std::string& name) {
  constexpr std::uint32_t kMagic = 0xde020109;
  constexpr std::uint32_t kMostNames = 1U << 20;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ArchiveHead head{};
  if (!file.valid() || ::pread(file.get(), &head, sizeof head, 0) != sizeof head ||
      head.magic != kMagic || head.string_used > kMostNames) {
    return false;
  }
  std::string names(head.string_used, '\0');
  const ssize_t n = ::pread(file.get(), names.data(), names.size(), head.string_offset);
  names.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::string whole = '\0' + name + '\0';
  return names.find(whole) != std::string::npos || names.starts_with(whole.substr(1));
}

}  // namespace

HostEtc look_at_etc(const std::string& etc) { return EtcReader(etc).read(); }

std::string language_of_host(const std::string& root) {
  constexpr std::size_t kLargest = 4096;
  constexpr const char* kOtherwise = "C.UTF-8";
  std::string language;
  for (const char* name : {"/etc/locale.conf", "/etc/default/locale"}) {
    const auto text = read_file_at(AT_FDCWD, root + name, kLargest);
    if (text.ok() && language.empty()) {
      language = language_in(text.value());
    }
  }
  const std::string data = name_of_data(language);
  const std::string place = root + "/usr/lib/locale/";
  struct stat info{};
  const bool there =
      !data.empty() && data.find("..") == std::string::npos &&
      (::stat((place + data).c_str(), &info) == 0 || is_in_archive(place + "locale-archive", data));
  return there ? language : kOtherwise;
}

}  // namespace carrel::native
