// The part of a mount plan that is about /etc: what the host has there, and settings of ours.
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/native/plan_writer.h"
#include "policy/mount_paths.h"

namespace carrel::native {

namespace {

// Writes what is shown in /etc, with the folders that it is in, but nothing that a tree covers.
class EtcWriter {
 public:
  EtcWriter(PlanWriter& plan, std::span<const GivenTree> trees) : plan_(plan), trees_(trees) {}

  // Whether it is to be shown; then the folders around it are there.
  bool begin(const std::string& name) {
    if (is_covered("/etc/" + name, trees_)) {
      return false;
    }
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
      std::string folder = "etc/" + name.substr(0, at);
      if (std::find(made_.begin(), made_.end(), folder) == made_.end()) {
        plan_.directory(folder);
        made_.push_back(std::move(folder));
      }
    }
    return true;
  }

 private:
  PlanWriter& plan_;
  std::span<const GivenTree> trees_;
  std::vector<std::string> made_;
};

}  // namespace

bool is_covered(const std::string& path, std::span<const GivenTree> trees) {
  return std::any_of(trees.begin(), trees.end(),
                     [&](const GivenTree& tree) { return policy::path_holds(tree.target, path); });
}

// Settings of ours for programs that refuse to work without any, where nobody else has some: the
// user's own come after them and say something else. pip may install beside the packages of the
// system, which it cannot write to: it does so in HOME. git has a name for who commits.
void add_settings(PlanWriter& plan, const policy::Spec& spec, const std::string& image,
                  std::span<const GivenTree> trees) {
  const auto add = [&](const std::string& path, const std::string& text) {
    struct stat info{};
    if (!is_covered("/" + path, trees) &&
        (image.empty() || ::lstat((image + "/" + path).c_str(), &info) != 0)) {
      plan.file(path, text);
    }
  };
  add("etc/pip.conf", "[global]\nbreak-system-packages = true\n");
  add("etc/gitconfig",
      "[user]\n\tname = " + spec.user + "\n\temail = " + spec.user + "@" + spec.hostname + "\n");
}

// `python` where the host has it by another name only, in a folder at the end of the PATH.
void add_python(PlanWriter& plan, const HostTree& host) {
  if (!host.python.empty()) {
    plan.directory("opt/carrel");
    plan.directory(kOwnPrograms.substr(1));
    plan.link(std::string(kOwnPrograms.substr(1)) + "/python", host.python);
  }
}

// What of the host's /etc is part of the image `host`.
void add_host_etc(PlanWriter& plan, const HostEtc& etc, std::span<const GivenTree> trees) {
  constexpr auto kShown = protocol::kStepReadOnly | protocol::kStepOptional;
  EtcWriter writer(plan, trees);
  plan.link("etc/os-release", "../usr/lib/os-release");
  plan.link("etc/mtab", "../proc/self/mounts");
  plan.directory("etc/ssl");
  for (const auto& [name, target] : etc.links) {
    if (writer.begin(name)) {
      plan.link("etc/" + name, target);
    }
  }
  for (const auto& [name, text] : etc.texts) {
    if (writer.begin(name)) {
      plan.file("etc/" + name, text);
    }
  }
  for (const std::string& name : etc.folders) {
    if (writer.begin(name)) {
      plan.bind("/etc/" + name, "etc/" + name, kShown);
    }
  }
  for (const std::string& name : etc.files) {
    if (writer.begin(name)) {
      plan.bind("/etc/" + name, "etc/" + name, kShown | protocol::kStepIsFile);
    }
  }
}

}  // namespace carrel::native
