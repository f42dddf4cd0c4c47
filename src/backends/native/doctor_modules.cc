#include "backends/native/doctor_modules.h"

#include <fcntl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/files.h"

namespace carrel::native {

namespace {

constexpr std::array<std::string_view, 12> kRisks = {
    "af_alg", "algif_aead", "algif_hash", "algif_rng", "algif_skcipher", "can",
    "dccp",   "esp4",       "esp6",       "rxrpc",     "sctp",           "tipc"};
constexpr std::size_t kLargestList = 8U << 20;
constexpr std::size_t kLargestConfiguration = 1U << 20;

// Of "kernel/net/sctp/sctp.ko.xz: ...": sctp. Dashes and underscores are the same to modprobe.
std::string module_name(std::string_view line) {
  const std::string_view path = line.substr(0, line.find(':'));
  const std::string_view file = path.substr(path.rfind('/') + 1);
  std::string name(file.substr(0, file.find('.')));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Of "install sctp /bin/false": sctp; nothing of any other line.
std::string forbidden_name(const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  std::string name;
  std::string program;
  words >> verb >> name >> program;
  if (verb != "install" || (!program.ends_with("/false") && !program.ends_with("/true"))) {
    return {};
  }
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string text_of(const std::string& path, std::size_t limit) {
  auto text = read_file_at(AT_FDCWD, path, limit);
  return text.ok() ? std::move(text.value()) : std::string();
}

std::string modprobe_configuration() {
  std::string all;
  for (const char* directory : {"/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d"}) {
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(directory, failed)) {
      if (entry.path().extension() == ".conf") {
        all += text_of(entry.path(), kLargestConfiguration) + "\n";
      }
    }
  }
  return all;
}

}  // namespace

std::vector<std::string> loadable_risks(std::string_view modules_dep, std::string_view modprobe) {
  std::vector<std::string> found;
  std::istringstream modules{std::string(modules_dep)};
  for (std::string line; std::getline(modules, line);) {
    std::string name = module_name(line);
    if (std::find(kRisks.begin(), kRisks.end(), name) != kRisks.end()) {
      found.push_back(std::move(name));
    }
  }
  std::istringstream rules{std::string(modprobe)};
  for (std::string line; std::getline(rules, line);) {
    std::erase(found, forbidden_name(line));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> risky_modules() {
  utsname kernel{};
  if (::uname(&kernel) != 0 || text_of("/proc/sys/kernel/modules_disabled", 16).starts_with('1')) {
    return {};
  }
  const std::string list = "/lib/modules/" + std::string(kernel.release) + "/modules.dep";
  return loadable_risks(text_of(list, kLargestList), modprobe_configuration());
}

}  // namespace carrel::native
