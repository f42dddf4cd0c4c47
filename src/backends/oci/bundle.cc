#include "backends/oci/bundle.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "sandbox/builder.h"

namespace carrel::oci {

namespace {

using Json = nlohmann::ordered_json;
using protocol::MountStep;
using protocol::StepKind;

constexpr std::string_view kProc = "proc/";
constexpr char kGuest[] = "/proc/self/fd/4";  // the second of its descriptors
constexpr char kGuestFile[] = "run/carrel-guest";

// What runc lets be mounted in a proc; everything else there can only be masked.
constexpr std::array<std::string_view, 4> kReplaceable = {"proc/meminfo", "proc/stat",
                                                          "proc/loadavg", "proc/uptime"};

std::string octal(std::uint32_t mode) {
  constexpr unsigned kDigit = 7;
  std::string text = "0000";
  for (auto at = text.rbegin(); at != text.rend(); ++at, mode >>= 3U) {
    *at = static_cast<char>('0' + (mode & kDigit));
  }
  return text;
}

bool has(const MountStep& step, protocol::StepFlags flag) { return (step.flags & flag) != 0; }

// Runtimes make a /dev of their own: its devices and links.
bool is_of_dev(const MountStep& step) {
  return step.path == "dev" || (step.path.starts_with("dev/") && step.kind != StepKind::kAttach &&
                                step.kind != StepKind::kDevpts);
}

class Writer {
 public:
  Writer(const Places& places, Exists exists, Dialect dialect)
      : places_(places), exists_(exists), gvisor_(dialect == Dialect::kGvisors) {
    if (!gvisor_) {
      mount("/dev", "tmpfs", "tmpfs", {"nosuid", "noexec", "ro", "mode=755", "size=64k"});
    } else {  // it has a /dev of its own, and would make a /sys that can be written to
      mount("/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"});
    }
  }

  Status follow(std::string_view part) {
    return sandbox::follow_plan(part, [this](const MountStep& step) { return take(step); });
  }

  Bundle finish(const sandbox::RoomRequest& request) {
    const Json none = Json::array();
    // With it, and with nothing less, the root of a user namespace can be made another below it.
    // Behind gVisor the guest gives up /dev, too.
    Json lock = Json::array({"CAP_SETFCAP"});
    if (gvisor_) {
      lock.push_back("CAP_CHOWN");
    }
    const Json ids = Json::array({{{"containerID", 0}, {"hostID", 0}, {"size", 1}}});
    Json config;
    config["ociVersion"] = "1.0.2";
    config["process"] = {{"terminal", false},
                         {"user", {{"uid", 0}, {"gid", 0}}},
                         {"args", arguments()},
                         {"env", none},
                         {"cwd", "/"},
                         {"capabilities",
                          {{"bounding", lock},
                           {"effective", lock},
                           {"permitted", lock},
                           {"inheritable", none},
                           {"ambient", none}}},
                         {"noNewPrivileges", true}};
    config["root"] = {{"path", "rootfs"}, {"readonly", sealed_}};
    config["hostname"] = request.hostname;
    config["mounts"] = mounts_;
    Json namespaces = Json::array();
    for (const char* type : {"pid", "ipc", "uts", "mount"}) {
      namespaces.push_back({{"type", type}});
    }
    // CRITICAL: gVisor's kernel has the network of the porch, which is captive, or none.
    if (!gvisor_ || request.captive.empty()) {
      namespaces.push_back({{"type", "network"}});
    }
    if (gvisor_) {
      config["linux"] = {{"namespaces", namespaces}};
      result_.program = kGuestFile;
    } else {
      namespaces.push_back({{"type", "user"}});
      namespaces.push_back({{"type", "cgroup"}});
      config["linux"] = {{"uidMappings", ids},
                         {"gidMappings", ids},
                         {"namespaces", namespaces},
                         {"maskedPaths", masked_},
                         {"readonlyPaths", read_only_}};
    }
    result_.config = config.dump(-1, ' ', false, Json::error_handler_t::replace);
    return std::move(result_);
  }

 private:
  [[nodiscard]] Json arguments() const {
    return gvisor_ ? Json::array({"/" + std::string(kGuestFile), sandbox::kFurnishedByGvisor})
                   : Json::array({kGuest, sandbox::kFurnished});
  }

  void mount(const std::string& destination, const char* type, const std::string& source,
             std::vector<std::string> options) {
    mounts_.push_back({{"destination", destination},
                       {"type", type},
                       {"source", source},
                       {"options", std::move(options)}});
  }

  std::string data(std::string_view content) {
    result_.data.emplace_back(content);
    return places_.data(result_.data.size() - 1);
  }

  Status take(const MountStep& step) {
    if (!valid_utf8(std::string(step.path)) ||
        (step.kind == StepKind::kBind && !valid_utf8(std::string(step.source)))) {
      return Error{Code::kUnsupported, 0, "an OCI runtime takes only names that are UTF-8",
                   "use --backend native"};
    }
    const std::string path = "/" + std::string(step.path);
    if (is_of_dev(step)) {
      return {};
    }
    switch (step.kind) {
      case StepKind::kDirectory:  // these are made in the root itself
      case StepKind::kLink:
      case StepKind::kFile:
      case StepKind::kMountPoint:
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
          mount(path, "none", std::string(step.source), all_below(step, {"ro"}));
        }
        return {};
      case StepKind::kProc:
        mount(path, "proc", "proc", {"nosuid", "noexec", "nodev"});
        return {};
      case StepKind::kDevpts:
        mount(path, "devpts", "devpts",
              {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"});
        return {};
      case StepKind::kMask:
        mask(step, path);
        return {};
      case StepKind::kReadOnly:
        read_only_.push_back(path);
        return {};
      case StepKind::kSealRoot:
        sealed_ = true;
        return {};
      case StepKind::kReplace:
        replace(step, path);
        return {};
      case StepKind::kTree:
        tree(step, path);
        return {};
      case StepKind::kOverlay:
        if (gvisor_) {
          break;
        }
        mount(path, "none", places_.overlay(step.path), {"bind", "rw", "nosuid", "nodev"});
        return {};
      case StepKind::kDevice:
        break;
    }
    return Error{Code::kUnsupported, 0,
                 "an OCI runtime cannot make what the sandbox needs at '" + path + "'",
                 "use --backend native"};
  }

  // The options of what is shown with everything that is mounted in it. What is read-only for
  // gVisor's kernel is so throughout. In a file nothing is mounted, and crun opens what it is to
  // protect further down as a directory.
  [[nodiscard]] std::vector<std::string> all_below(const MountStep& step,
                                                   std::vector<std::string> options) const {
    options.insert(options.end(), {"rbind", "nosuid", "nodev"});
    if (!gvisor_ && !has(step, protocol::kStepIsFile)) {
      options.insert(options.end(), {"rnosuid", "rnodev"});
      if (options.front() == "ro") {
        options.emplace_back("rro");
      }
    }
    return options;
  }

  void attach(const MountStep& step, const std::string& path) {
    std::vector<std::string> options = {"rw", "nosuid", "nodev"};
    if (has(step, protocol::kStepNoExec)) {
      options.emplace_back("noexec");
    }
    if (gvisor_) {  // each has the size of the whole
      const auto mode = modes_.find({step.slot, std::string(step.source)});
      options.push_back("mode=" + octal(mode == modes_.end() ? 0755U : mode->second));
      options.push_back("size=" + std::to_string(sizes_.at(step.slot)));
      mount(path, "tmpfs", "tmpfs", std::move(options));
      return;
    }
    options.emplace_back("bind");
    mount(path, "none", places_.slot(step.slot) + "/" + std::string(step.source),
          std::move(options));
  }

  // A runtime hides files behind /dev/null, which is a device; in a proc nothing else can be had.
  void mask(const MountStep& step, const std::string& path) {
    if (step.path.starts_with(kProc)) {  // gVisor's has nothing to hide
      masked_.push_back(path);
      return;
    }
    const std::string cover =
        has(step, protocol::kStepIsFile) ? data({}) : places_.empty_directory();
    mount(path, "none", cover, {"bind", "ro", "nosuid", "nodev", "noexec"});
  }

  void replace(const MountStep& step, const std::string& path) {
    const bool of_proc = step.path.starts_with(kProc);
    if (of_proc &&
        std::find(kReplaceable.begin(), kReplaceable.end(), step.path) == kReplaceable.end()) {
      masked_.push_back(path);
      return;
    }
    if (!of_proc || exists_(path)) {
      mount(path, "none", data(step.source), {"bind", "ro", "nosuid", "nodev", "noexec"});
    }
  }

  void tree(const MountStep& step, const std::string& path) {
    mount(path, "none", places_.sources.at(step.slot),
          all_below(step, {has(step, protocol::kStepReadOnly) ? "ro" : "rw"}));
  }

  const Places& places_;
  Exists exists_;
  bool gvisor_;
  std::array<std::uint64_t, protocol::kMaxTmpfs> sizes_{};
  std::map<std::pair<std::uint8_t, std::string>, std::uint32_t> modes_;
  Bundle result_;
  Json mounts_ = Json::array();
  Json masked_ = Json::array();
  Json read_only_ = Json::array();
  bool sealed_ = false;
};

}  // namespace

std::string Places::overlay(std::string_view path) const {
  std::string name(path);
  std::replace(name.begin(), name.end(), '/', '+');
  return stage + "/overlay-" + name;
}

Result<Bundle> bundle_for(const sandbox::RoomRequest& request, const Places& places, Exists exists,
                          Dialect dialect) {
  for (const std::string& source : places.sources) {
    if (!valid_utf8(source)) {
      return Error{Code::kUnsupported, 0, "an OCI runtime takes only names that are UTF-8",
                   "use --backend native"};
    }
  }
  Writer writer(places, exists, dialect);
  CARREL_TRY(writer.follow(request.plan.shared));
  CARREL_TRY(writer.follow(request.plan.alike));
  CARREL_TRY(writer.follow(request.plan.own));
  return writer.finish(request);
}

}  // namespace carrel::oci
