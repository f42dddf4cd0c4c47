#pragma once

#include <string>
#include <utility>
#include <vector>

namespace carrel::native {

// What the image `host` shows of the host's /etc: what programs of /usr do not start without, by
// the names of one table (host_etc.cc), and nothing else. What is shown belongs to whom /etc
// belongs, can be read by everybody and written by nobody else. Names are below /etc.
struct HostEtc {
  std::vector<std::string> folders;                        // mounted, with all that is in them
  std::vector<std::string> files;                          // mounted
  std::vector<std::pair<std::string, std::string>> texts;  // small files as they are now
  std::vector<std::pair<std::string, std::string>> links;  // and their targets, as they are written
  std::string sources;  // the device and the inode of each that is mounted
};

// `etc` is the folder, /etc but for tests.
HostEtc look_at_etc(const std::string& etc = "/etc");

// The LANG of the sandbox's commands: the host's where that is of UTF-8 and its data is in /usr,
// otherwise C.UTF-8.
std::string language_of_host(const std::string& root = "");

}  // namespace carrel::native
