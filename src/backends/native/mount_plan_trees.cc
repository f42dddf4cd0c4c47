// The part of a mount plan that is about trees of the host's.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "backends/native/image_home.h"
#include "backends/native/plan_writer.h"
#include "policy/mount_paths.h"

namespace carrel::native {

namespace {

using protocol::StepKind;

std::uint32_t kind_flag(GivenTree::Kind kind) {
  return kind == GivenTree::Kind::kFile ? std::uint32_t{protocol::kStepIsFile} : 0U;
}

// Plans know paths from the root on.
std::string_view in_root(const std::string& path) { return std::string_view(path).substr(1); }

// Whether the target lies on a file system of the sandbox's own, which is there only after the root
// is sealed, and can be written to.
bool is_on_own(const policy::Spec& spec, const std::string& target) {
  const std::array<std::string, 3> own = {"/workspace", "/tmp", "/home/" + spec.user};
  return std::any_of(own.begin(), own.end(), [&](const std::string& folder) {
    return target != folder && policy::path_holds(folder, target);
  });
}

Error no_place(const std::string& target, const std::string& why, const std::string& hint) {
  return Error{
      Code::kInvalid, 0,
      "mount at '" + target + "': " + why + ", which is read-only, and nothing of that name in it",
      hint};
}

// A folder of the image's, at the top or in /etc, is shown as it is.
Status check_in_image(const policy::Spec& spec, const std::string& image,
                      const std::string& target) {
  if (spec.root_mode != policy::RootMode::kReadOnly) {
    return {};
  }
  constexpr std::string_view kEtc = "/etc/";
  const bool in_etc = target.starts_with(kEtc);
  const std::string top = target.substr(0, target.find('/', in_etc ? kEtc.size() : 1));
  const bool of_image =
      (in_etc || is_of_image(top.substr(1))) && ::access((image + top).c_str(), F_OK) == 0;
  if (of_image && ::access((image + target).c_str(), F_OK) != 0) {
    return no_place(target, "the image has '" + top + "'",
                    "choose a place such as /data, or give --writable-root");
  }
  return {};
}

void add_target(PlanWriter& plan, const GivenTree& tree) {
  const std::string_view path = in_root(tree.target);
  for (std::size_t at = path.find('/'); at != std::string_view::npos; at = path.find('/', at + 1)) {
    plan.simple(StepKind::kMountPoint, path.substr(0, at));
  }
  plan.simple(StepKind::kMountPoint, path, kind_flag(tree.kind));
}

}  // namespace

Status check_targets(const policy::Spec& spec, const HostTree& host,
                     std::span<const GivenTree> trees) {
  constexpr std::string_view kDirectory = "dir:";
  for (const GivenTree& tree : trees) {
    if (spec.image.starts_with(kDirectory)) {
      CARREL_TRY(check_in_image(spec, spec.image.substr(kDirectory.size()), tree.target));
      continue;
    }
    for (const std::string& folder : host.etc.folders) {
      const std::string shown = "/etc/" + folder;
      if (tree.target != shown && policy::path_holds(shown, tree.target) &&
          ::access(tree.target.c_str(), F_OK) != 0) {
        return no_place(tree.target, "'" + shown + "' is the host's",
                        "choose a place such as /data");
      }
    }
  }
  return {};
}

void add_tree_targets(Parts& parts, const policy::Spec& spec, std::span<const GivenTree> trees) {
  for (const GivenTree& tree : trees) {
    if (!is_on_own(spec, tree.target)) {
      add_target(parts.shared, tree);
    }
  }
}

void add_trees(PlanWriter& own, const GivenTrees& given) {
  std::uint8_t slot = 0;
  for (const GivenTree& tree : given.trees) {
    add_target(own, tree);  // what is there stays
    const std::uint32_t writable =
        tree.mode == policy::MountMode::kReadWrite ? 0U : std::uint32_t{protocol::kStepReadOnly};
    const bool home = is_image_home(tree);
    const bool by_path = given.by == TreesBy::kPath && (home || !tree.overlay.has_value());
    own.tree(slot++, by_path ? std::string_view(tree.path) : std::string_view(),
             in_root(tree.target), writable | kind_flag(tree.kind));
    if (home) {
      own.cover(kDiskSlot, in_root(tree.target));
    }
    for (const GivenTree::Hidden& hidden : tree.hidden) {
      const bool file = hidden.kind == GivenTree::Kind::kFile;
      own.mask(std::string(in_root(tree.target)) + "/" + hidden.path,
               file ? kEmptyFile : kEmptyDirectory, kind_flag(hidden.kind));
    }
  }
}

}  // namespace carrel::native
