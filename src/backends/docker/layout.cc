#include "backends/docker/layout.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "guest/contained.h"
#include "sandbox/builder.h"

namespace carrel::docker {

namespace {

using protocol::MountStep;
using protocol::StepKind;

constexpr std::string_view kProc = "proc/";
constexpr std::string_view kDev = "dev/";
constexpr std::size_t kBlock = 512;
constexpr char kEmpty[] = "empty";
// An engine puts files of its own there, unless others are mounted.
constexpr std::array<std::string_view, 3> kEngines = {"etc/hosts", "etc/hostname",
                                                      "etc/resolv.conf"};

Error not_in_layout(std::string message) {
  return Error{Code::kUnsupported, 0, std::move(message), "use --backend oci --runtime runsc"};
}

bool has(const MountStep& step, protocol::StepFlags flag) { return (step.flags & flag) != 0; }

std::string octal(std::uint64_t number, std::size_t digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%0*llo", static_cast<int>(digits),
                static_cast<unsigned long long>(number));
  return text.data();
}

// An archive as POSIX has it. Everything in it belongs to root and has no time, so that the same
// layout is the same archive.
class Tar {
 public:
  Status add(char type, const std::string& path, std::uint32_t mode, const std::string& target,
             std::string_view content) {
    constexpr std::size_t kName = 100;
    if (path.size() >= kName || target.size() >= kName) {
      return not_in_layout("an engine takes no name as long as '/" + path + "'");
    }
    std::string head(kBlock, '\0');
    const auto put = [&](std::size_t at, std::string_view text) {
      std::memcpy(head.data() + at, text.data(), text.size());
    };
    put(0, path);
    put(100, octal(mode, 7));
    put(108, octal(0, 7));
    put(116, octal(0, 7));
    put(124, octal(content.size(), 11));
    put(136, octal(0, 11));
    put(148, "        ");
    head[156] = type;
    put(157, target);
    put(257, std::string_view("ustar\00000", 8));
    unsigned sum = 0;
    for (const char c : head) {
      sum += static_cast<unsigned char>(c);
    }
    put(148, octal(sum, 6) + '\0');
    text_ += head;
    text_ += content;
    text_.resize((text_.size() + kBlock - 1) / kBlock * kBlock, '\0');
    return {};
  }

  std::string finish() {
    text_.append(2 * kBlock, '\0');
    return std::move(text_);
  }

 private:
  std::string text_;
};

class Writer {
 public:
  Writer(const sandbox::RoomRequest& request, std::uint32_t user, std::uint32_t group,
         Exists exists)
      : request_(request), user_(user), group_(group), exists_(exists) {}

  Status follow(std::string_view part) {
    return sandbox::follow_plan(part, [this](const MountStep& step) { return take(step); });
  }

  Layout finish() {
    result_.image = tar_.finish();
    return std::move(result_);
  }

 private:
  Status take(const MountStep& step) {
    const std::string path(step.path);
    if (!valid_utf8(path) ||
        (step.kind == StepKind::kBind && !valid_utf8(std::string(step.source)))) {
      return not_in_layout("an engine takes only names that are UTF-8");
    }
    // It has a /dev of its own.
    if (path == "dev" || (path.starts_with(kDev) && step.kind != StepKind::kAttach)) {
      return {};
    }
    switch (step.kind) {
      case StepKind::kDirectory:
        // A plan may ask for one twice, and an engine takes no archive that does.
        return directories_.insert(path).second ? tar_.add('5', path, step.mode, {}, {}) : Status();
      case StepKind::kLink:
        return tar_.add('2', path, 0777, std::string(step.source), {});
      case StepKind::kFile:
        if (std::find(kEngines.begin(), kEngines.end(), step.path) != kEngines.end()) {
          cover(path, std::string(step.source));
        }
        return tar_.add('0', path, step.mode, {}, step.source);
      case StepKind::kMountPoint:  // whoever mounts makes them
      case StepKind::kProc:        // the kernel's own, and nothing of the host's
      case StepKind::kDevpts:
      case StepKind::kReadOnly:
      case StepKind::kSealRoot:
        return {};
      case StepKind::kTmpfs:
        sizes_.at(step.slot) = step.size;
        return {};
      case StepKind::kSubdirectory:
        modes_[{step.slot, std::string(step.source)}] = step.mode;
        return {};
      case StepKind::kAttach:
        attach(step, path);
        return {};
      case StepKind::kBind:
        if (!has(step, protocol::kStepOptional) || exists_(std::string(step.source))) {
          result_.mounts.push_back({std::string(step.source), "/" + path, false, false});
        }
        return {};
      case StepKind::kMask:
        if (!path.starts_with(kProc)) {
          mask(step, path);
        }
        return {};
      case StepKind::kReplace:
        if (!path.starts_with(kProc) || exists_("/" + path)) {
          cover(path, std::string(step.source));
        }
        return {};
      case StepKind::kTree:
        result_.mounts.push_back({request_.trees.at(step.slot).path, "/" + path, false,
                                  !has(step, protocol::kStepReadOnly)});
        return {};
      case StepKind::kOverlay:
      case StepKind::kDevice:
        break;
    }
    return not_in_layout("an engine cannot make what the sandbox needs at '/" + path + "'");
  }

  void cover(const std::string& path, std::string content) {
    const std::string name = "file" + std::to_string(result_.files.size());
    result_.files.push_back({name, std::move(content)});
    result_.mounts.push_back({name, "/" + path, true, false});
  }

  void mask(const MountStep& step, const std::string& path) {
    if (has(step, protocol::kStepIsFile)) {
      cover(path, {});
      return;
    }
    if (result_.folders.empty()) {
      result_.folders.emplace_back(kEmpty);
    }
    result_.mounts.push_back({kEmpty, "/" + path, true, false});
  }

  // Each has the size of the whole.
  void attach(const MountStep& step, const std::string& path) {
    const auto mode = modes_.find({step.slot, std::string(step.source)});
    result_.memory.push_back(
        {"/" + path, "rw,nosuid,nodev," +
                         std::string(has(step, protocol::kStepNoExec) ? "noexec" : "exec") +
                         ",size=" + std::to_string(sizes_.at(step.slot)) +
                         ",mode=" + octal(mode == modes_.end() ? 0755U : mode->second, 4) +
                         ",uid=" + std::to_string(user_) + ",gid=" + std::to_string(group_)});
  }

  const sandbox::RoomRequest& request_;
  std::uint32_t user_;
  std::uint32_t group_;
  Exists exists_;
  Tar tar_;
  std::set<std::string> directories_;
  Layout result_;
  std::array<std::uint64_t, protocol::kMaxTmpfs> sizes_{};
  std::map<std::pair<std::uint8_t, std::string>, std::uint32_t> modes_;
};

}  // namespace

Result<Layout> layout_for(const sandbox::RoomRequest& request, std::uint32_t user,
                          std::uint32_t group, Exists exists) {
  Writer writer(request, user, group, exists);
  CARREL_TRY(writer.follow(request.plan.shared));
  CARREL_TRY(writer.follow(request.plan.alike));
  CARREL_TRY(writer.follow(request.plan.own));
  return writer.finish();
}

}  // namespace carrel::docker
