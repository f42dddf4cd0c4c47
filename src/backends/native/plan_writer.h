#pragma once

#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "backends/native/mount_plan.h"
#include "protocol/boot.h"

// What mount plans are written with; see mount_plan.h.
namespace carrel::native {

inline constexpr std::uint8_t kDiskSlot = 0;   // /workspace and HOME
inline constexpr std::uint8_t kTmpSlot = 1;    // /tmp, /dev/shm
inline constexpr std::uint8_t kUpperSlot = 2;  // what is written to a writable root
inline constexpr std::uint8_t kGuestSlot = 3;  // the shells' pipes

// Writes steps one after the other.
class PlanWriter {
 public:
  PlanWriter() { steps_.reserve(8192); }
  void add(const protocol::MountStep& step) {
    const std::size_t start = steps_.size();
    steps_.resize(start + step.path.size() + step.source.size() + 64);
    protocol::Writer writer(
        {reinterpret_cast<unsigned char*>(steps_.data()) + start, steps_.size() - start});
    protocol::write_step(writer, step);
    steps_.resize(start + writer.size());
  }
  void directory(std::string_view path, std::uint32_t mode = 0755) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kDirectory;
    step.path = path;
    step.mode = mode;
    add(step);
  }
  void link(std::string_view path, std::string_view target) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kLink;
    step.path = path;
    step.source = target;
    add(step);
  }
  void file(std::string_view path, std::string_view content, std::uint32_t mode = 0444) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kFile;
    step.path = path;
    step.source = content;
    step.mode = mode;
    add(step);
  }
  void bind(std::string_view source, std::string_view path, std::uint32_t flags) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kBind;
    step.source = source;
    step.path = path;
    step.flags = flags;
    add(step);
  }
  void tmpfs(std::uint8_t slot, std::uint64_t bytes, std::string_view what) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kTmpfs;
    step.slot = slot;
    step.size = bytes;
    step.count = std::clamp<std::uint64_t>(bytes / 4096, 1024, 1U << 20);
    step.path = what;
    add(step);
  }
  // A directory of a tmpfs, mounted at `path`, which must exist.
  void attach(std::uint8_t slot, std::string_view name, std::string_view path, std::uint32_t mode,
              std::uint32_t flags = 0) {
    protocol::MountStep made;
    made.kind = protocol::StepKind::kSubdirectory;
    made.slot = slot;
    made.source = name;
    made.mode = mode;
    add(made);
    protocol::MountStep step;
    step.kind = protocol::StepKind::kAttach;
    step.slot = slot;
    step.source = name;
    step.path = path;
    step.flags = flags;
    add(step);
  }
  void device(std::string_view source, std::string_view path, unsigned major_number,
              unsigned minor_number) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kDevice;
    step.source = source;
    step.path = path;
    step.size = makedev(major_number, minor_number);
    step.flags = protocol::kStepIsFile | protocol::kStepNoExec;
    add(step);
  }
  // What is mounted at `path` becomes what is under a throw-away upper.
  void cover(std::uint8_t slot, std::string_view path) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kOverlay;
    step.slot = slot;
    step.path = path;
    add(step);
  }
  void simple(protocol::StepKind kind, std::string_view path, std::uint32_t flags = 0) {
    protocol::MountStep step;
    step.kind = kind;
    step.path = path;
    step.flags = flags;
    add(step);
  }
  void mask(std::string_view path, std::string_view cover, std::uint32_t flags) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kMask;
    step.path = path;
    step.source = cover;
    step.flags = flags;
    add(step);
  }
  // A read-only file of its own in the place of the one at `path`, if there is one; with
  // kStepIsFile one is made first.
  void replace(std::uint8_t slot, std::string_view path, std::string_view text,
               std::uint32_t flags) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kReplace;
    step.slot = slot;
    step.path = path;
    step.source = text;
    step.flags = flags;
    add(step);
  }
  void overlay(std::string_view source, std::string_view path) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kOverlay;
    step.slot = kUpperSlot;
    step.source = source;
    step.path = path;
    add(step);
  }
  // The tree of the plan's descriptor `slot` at `path`, which must exist.
  void tree(std::uint8_t slot, std::string_view source, std::string_view path,
            std::uint32_t flags) {
    protocol::MountStep step;
    step.kind = protocol::StepKind::kTree;
    step.slot = slot;
    step.source = source;
    step.path = path;
    step.flags = flags;
    add(step);
  }
  [[nodiscard]] std::string take() { return std::move(steps_); }

 private:
  std::string steps_;
};

// Empty in every root, and good to hide something behind.
inline constexpr char kEmptyDirectory[] = "run";
inline constexpr char kEmptyFile[] = "etc/machine-id";  // it is itself covered in the end

struct Parts {
  PlanWriter shared;
  PlanWriter alike;
  PlanWriter own;
};

// Whether an entry of this name at the top of an image is shown: the others are the sandbox's own.
bool is_of_image(const std::string& name);

// Nothing can be made in the folders of an image that is read-only: whether it has what the trees
// need.
Status check_targets(const policy::Spec& spec, const HostTree& host,
                     std::span<const GivenTree> trees);
// Whether a tree is put at this place or around it.
bool is_covered(const std::string& path, std::span<const GivenTree> trees);

// mount_plan_etc.cc. `image` is the directory of an image, or empty.
void add_settings(PlanWriter& plan, const policy::Spec& spec, const std::string& image,
                  std::span<const GivenTree> trees);
void add_python(PlanWriter& plan, const HostTree& host);
void add_host_etc(PlanWriter& plan, const HostEtc& etc, std::span<const GivenTree> trees);

// mount_plan_trees.cc: what trees that are given need of the root before it is sealed, and the
// trees themselves.
void add_tree_targets(Parts& parts, const policy::Spec& spec, std::span<const GivenTree> trees);
void add_trees(PlanWriter& own, const GivenTrees& given);

}  // namespace carrel::native
