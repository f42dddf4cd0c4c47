#include "trees.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "remains.h"
#include "support/host.h"
#include "support/place.h"
#include "support/workspace_files.h"

namespace carrel::test {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string line_of(const fs::path& path, const std::string& name) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    return name + " cannot be looked at\n";
  }
  std::ostringstream line;
  line << std::quoted(name) << ' ' << std::oct << info.st_mode << std::dec << ' '
       << info.st_mtim.tv_sec << '.' << info.st_mtim.tv_nsec << ' ';
  if (S_ISREG(info.st_mode)) {
    const std::string text = read_text(path).value_or("unreadable");
    line << text.size() << ' ' << std::hash<std::string>{}(text);
  } else if (S_ISLNK(info.st_mode)) {
    std::error_code failed;
    line << fs::read_symlink(path, failed);
  }
  return line.str() + "\n";
}

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  std::error_code failed;
  for (auto it = fs::directory_iterator(directory, failed);
       !failed && it != fs::directory_iterator(); it.increment(failed)) {
    names.insert(it->path().filename());
  }
  return names;
}

json object(As as, std::vector<std::string> words) {
  words.emplace_back("--json");
  const Run run = carrel(as, words);
  json parsed = json::parse(run.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << words[1] << ": " << run.out << run.err;
  return parsed.is_object() ? parsed : json::object();
}

// Nothing but what every workspace has, and nothing half made.
std::string strays_of(const std::string& directory) {
  std::string wrong;
  for (const std::string& name : names_in(directory)) {
    const std::set<std::string> known = {"box",   "disk",  "index", "lock", "mount",
                                         "quiet", "stage", "tree",  "use",  "work"};
    wrong += known.contains(name) ? "" : "stray " + directory + "/" + name + "\n";
  }
  for (const std::string& name : names_in(directory + "/stage")) {
    wrong += "stray " + directory + "/stage/" + name + "\n";
  }
  return wrong;
}

}  // namespace

std::string tree_state(const std::string& directory) {
  std::set<std::string> lines;
  std::error_code failed;
  for (auto it = fs::recursive_directory_iterator(directory, failed);
       !failed && it != fs::recursive_directory_iterator(); it.increment(failed)) {
    lines.insert(line_of(it->path(), it->path().lexically_relative(directory)));
  }
  std::string text = failed ? "it cannot be read: " + failed.message() : "";
  for (const std::string& line : lines) {
    text += line;
  }
  return text;
}

std::string tree_of(As as, const std::string& workspace) {
  return tree_state(WorkspaceFiles(as, workspace).tree());
}

std::string wrong_with_workspaces(As as) {
  const json checked = object(as, {"workspace", "fsck"});
  std::string wrong;
  for (const json& problem : checked.value("problems", json::array({"no answer"}))) {
    wrong += problem.get<std::string>() + "\n";
  }
  const std::string home = place().home(as);
  if (const std::size_t there = names_in(home + "/layers").size();
      there != checked.value("layers", std::size_t{0})) {
    wrong += std::to_string(there) + " layers on disk, " + checked.dump() + "\n";
  }
  std::set<std::string> listed;
  const json list = object(as, {"workspace", "ls"});
  for (const json& one : list.value("workspaces", json::array())) {
    listed.insert(one["name"].get<std::string>());
  }
  const std::set<std::string> there = names_in(home + "/workspaces");
  for (const std::string& name : there) {
    wrong += listed.contains(name) ? strays_of(home + "/workspaces/" + name)
                                   : "stray " + home + "/workspaces/" + name + "\n";
  }
  if (const std::string devices = loop_devices_of(as); live_boxes(as).empty() && !devices.empty()) {
    wrong += "loop devices that nobody has: " + devices;
  }
  for (const std::string& name : listed) {
    wrong += there.contains(name) ? "" : "no directory of " + name + "\n";
  }
  return wrong;
}

std::string lasting_wrong_with_workspaces(As as) {
  std::string wrong;
  eventually(std::chrono::seconds(5), [&] {
    wrong = wrong_with_workspaces(as);
    return wrong.empty();
  });
  return wrong;
}

}  // namespace carrel::test
