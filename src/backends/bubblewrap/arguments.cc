#include "backends/bubblewrap/arguments.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "sandbox/builder.h"

namespace carrel::bubblewrap {

namespace {

using protocol::MountStep;
using protocol::StepKind;

constexpr std::string_view kDev = "dev";
constexpr std::string_view kProc = "proc/";

std::string octal(std::uint32_t mode) {
  constexpr unsigned kDigit = 7;
  std::string text = "0000";
  for (auto at = text.rbegin(); at != text.rend(); ++at, mode >>= 3U) {
    *at = static_cast<char>('0' + (mode & kDigit));
  }
  return text;
}

std::string absolute(std::string_view path) { return "/" + std::string(path); }

bool has(const MountStep& step, protocol::StepFlags flag) { return (step.flags & flag) != 0; }

// bubblewrap makes a /dev of its own: its devices, links and terminals.
bool is_of_dev(const MountStep& step) {
  return step.path == kDev || (step.path.starts_with("dev/") && step.kind != StepKind::kAttach);
}

class Writer {
 public:
  Writer(const std::vector<std::string>& sources, Exists exists)
      : sources_(sources), exists_(exists) {}

  Status follow(std::string_view part) {
    return sandbox::follow_plan(part, [this](const MountStep& step) { return take(step); });
  }

  void add(std::initializer_list<std::string> words) {
    result_.words.insert(result_.words.end(), words);
  }

  // What has to be writable while everything is put into it.
  void seal() {
    add({"--remount-ro", "/dev"});
    if (sealed_) {
      add({"--remount-ro", "/"});
    }
  }

  Arguments take_result() { return std::move(result_); }

 private:
  std::string data(std::string_view content) {
    result_.data.emplace_back(content);
    return std::to_string(kData + static_cast<int>(result_.data.size()) - 1);
  }

  Status take(const MountStep& step) {
    const std::string path = absolute(step.path);
    if (is_of_dev(step)) {
      if (step.path == kDev) {
        add({"--dev", path});
      }
      return {};
    }
    switch (step.kind) {
      case StepKind::kDirectory:
        add({"--perms", octal(step.mode), "--dir", path});
        return {};
      case StepKind::kLink:
        add({"--symlink", std::string(step.source), path});
        return {};
      case StepKind::kFile:
        add({"--perms", octal(step.mode), "--file", data(step.source), path});
        return {};
      case StepKind::kTmpfs:
        sizes_.at(step.slot) = step.size;
        return {};
      case StepKind::kSubdirectory:
        modes_.at(step.slot) = step.mode;
        return {};
      case StepKind::kAttach:
        // Each has the size of the whole: it cannot mount a part of what it made.
        add({"--perms", octal(modes_.at(step.slot)), "--size", std::to_string(sizes_.at(step.slot)),
             "--tmpfs", path});
        return {};
      case StepKind::kBind:
        bind(step, path);
        return {};
      case StepKind::kProc:
        add({"--proc", path});
        return {};
      case StepKind::kMask:
        mask(step, path);
        return {};
      case StepKind::kReplace:
        // Over what is there; of a proc not everything is.
        if (!step.path.starts_with(kProc) || exists_(path)) {
          add({"--perms", "0444", "--ro-bind-data", data(step.source), path});
        }
        return {};
      case StepKind::kTree:
        add({has(step, protocol::kStepReadOnly) ? "--ro-bind" : "--bind", sources_.at(step.slot),
             path});
        return {};
      case StepKind::kMountPoint:
        mount_point(step, path);
        return {};
      case StepKind::kSealRoot:
        sealed_ = true;
        return {};
      case StepKind::kReadOnly:
        // What is below proc/sys is whose namespaces the reader has, in every proc.
        add({"--ro-bind", path, path});
        return {};
      case StepKind::kDevpts:  // a part of its /dev
        return {};
      case StepKind::kDevice:
      case StepKind::kOverlay:
        break;
    }
    return Error{Code::kUnsupported, 0,
                 "bubblewrap cannot make what the sandbox needs at '" + path + "'",
                 "use --backend native"};
  }

  void bind(const MountStep& step, const std::string& path) {
    const std::string source(step.source);
    const bool read_only = has(step, protocol::kStepReadOnly);
    const std::string word = read_only ? "--ro-bind" : "--bind";
    add({has(step, protocol::kStepOptional) ? word + "-try" : word, source, path});
  }

  void mask(const MountStep& step, const std::string& path) {
    if (step.path.starts_with(kProc) && !exists_(path)) {
      return;
    }
    if (has(step, protocol::kStepIsFile)) {
      add({"--perms", "0444", "--ro-bind-data", data({}), path});
    } else {
      add({"--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path});
    }
  }

  // The tree itself makes what is missing of its own path.
  void mount_point(const MountStep& step, const std::string& path) {
    if (!has(step, protocol::kStepIsFile)) {
      add({"--dir", path});
    }
  }

  const std::vector<std::string>& sources_;
  Exists exists_;
  Arguments result_;
  bool sealed_ = false;
  std::array<std::uint64_t, protocol::kMaxTmpfs> sizes_{};
  std::array<std::uint32_t, protocol::kMaxTmpfs> modes_{};
};

}  // namespace

Result<Arguments> arguments_for(const sandbox::RoomRequest& request,
                                const std::vector<std::string>& sources, Exists exists) {
  Writer writer(sources, exists);
  writer.add({"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net",
              "--unshare-cgroup-try", "--disable-userns", "--as-pid-1", "--new-session",
              "--clearenv"});
  writer.add({"--uid", std::to_string(request.uid), "--gid", std::to_string(request.gid),
              "--hostname", request.hostname});
  writer.add({"--seccomp", std::to_string(kFilter), "--info-fd", std::to_string(kInfo)});
  CARREL_TRY(writer.follow(request.plan.shared));
  CARREL_TRY(writer.follow(request.plan.alike));
  CARREL_TRY(writer.follow(request.plan.own));
  writer.seal();
  writer.add({"--chdir", "/"});
  return writer.take_result();
}

}  // namespace carrel::bubblewrap
