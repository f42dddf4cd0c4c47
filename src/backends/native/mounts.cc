#include "backends/native/mounts.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "policy/given.h"
#include "policy/mounts.h"

namespace carrel::native {

namespace {

constexpr std::uint32_t kNobody = 65534;
constexpr std::size_t kMostNamed = 8;

// Where everybody may write, the sandbox needs nobody's rights to: what it makes in root's folder
// does not have to be root's.
GivenTree::Owner owner_of(const struct stat& info, policy::MountMode mode) {
  if (info.st_uid == 0 && mode == policy::MountMode::kReadWrite && (info.st_mode & S_IWOTH) != 0) {
    return {kNobody, kNobody};
  }
  return {info.st_uid, info.st_gid};
}

Result<GivenTree> tree_of(const policy::Mount& mount, storage::JudgedMount judged) {
  struct stat info{};
  if (::fstat(judged.source.get(), &info) != 0) {
    return system_error("look at '" + mount.source + "'");
  }
  GivenTree tree;
  tree.source = std::move(judged.source);
  tree.path = std::move(judged.decision.real_path);
  tree.target = mount.target;
  tree.kind = S_ISDIR(info.st_mode) ? GivenTree::Kind::kFolder : GivenTree::Kind::kFile;
  tree.mode = mount.mode;
  tree.owner = owner_of(info, mount.mode);
  for (policy::Entry& entry : judged.decision.hidden) {
    tree.hidden.push_back({std::move(entry.path),
                           entry.kind == policy::FileKind::kFolder ? GivenTree::Kind::kFolder
                                                                   : GivenTree::Kind::kFile,
                           std::string(policy::hidden_because(entry.why))});
  }
  return tree;
}

}  // namespace

Result<std::vector<GivenTree>> open_mounts(const policy::Spec& spec,
                                           const storage::OwnPlaces& own) {
  std::vector<GivenTree> trees;
  if (spec.mounts.empty()) {
    return trees;
  }
  CARREL_ASSIGN(const auto forbidden, storage::host_forbidden_paths(own));
  CARREL_ASSIGN(const storage::MountJudge judge, storage::MountJudge::open(forbidden));
  for (const policy::Mount& mount : spec.mounts) {
    if (!spec.code.empty() && mount.target == "/workspace") {
      return Error{
          Code::kInvalid, 0,
          "mount '" + policy::printable(mount.source) + "': it would cover /workspace/code",
          "choose a place such as /data or /workspace/data"};
    }
    CARREL_ASSIGN(storage::JudgedMount judged,
                  judge.grant(spec.mount_grants, {mount.source, mount.mode}));
    CARREL_ASSIGN(GivenTree tree, tree_of(mount, std::move(judged)));
    trees.push_back(std::move(tree));
  }
  return trees;
}

std::string hidden_text(const GivenTree& tree) {
  if (tree.hidden.empty()) {
    return {};
  }
  std::string text = "hidden in it: ";
  const std::size_t named = std::min(tree.hidden.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i) {
    text += (i == 0 ? "" : ", ") + policy::printable(tree.hidden[i].path) + " (" +
            tree.hidden[i].why + ")";
  }
  if (named < tree.hidden.size()) {
    text += " and " + std::to_string(tree.hidden.size() - named) + " more";
  }
  return text;
}

}  // namespace carrel::native
