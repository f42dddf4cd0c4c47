// How mounts are written: whatever the bytes, what is read is what was written, no target leaves
// the places that are free, no two overlap, and folding a path leaves nothing to fold.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "policy/given.h"
#include "policy/mount_paths.h"
#include "policy/mount_request.h"

namespace {

namespace policy = carrel::policy;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

void require_short_line(const carrel::Error& error) {
  const std::string text = error.to_string();
  require(text.size() < 800);
  require(policy::shape_of(text) == policy::TextShape::kPlain);
}

void try_mount(std::string_view text, std::vector<policy::Mount>& mounts) {
  const auto mount = policy::parse_mount({"--mount", text});
  if (!mount.ok()) {
    require_short_line(mount.error());
    return;
  }
  const policy::Mount& one = mount.value();
  const std::string written = one.source + ":" + one.target;
  const bool writable = one.mode == policy::MountMode::kReadWrite;
  require(text == written + (writable ? ":rw" : "") || (!writable && text == written + ":ro"));
  require(policy::folded_path(one.target) == one.target && one.target != "/");
  for (const std::string_view own :
       {"/proc", "/sys", "/dev", "/usr", "/workspace/code", "/etc/passwd", "/etc/group",
        "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id", "/etc/mtab",
        "/etc/nsswitch.conf", "/etc/os-release"}) {
    require(!policy::path_holds(own, one.target));
  }
  require(one.target != "/etc");
  mounts.push_back(one);
  if (!policy::check_mounts(mounts).ok()) {
    mounts.pop_back();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string folded = policy::folded_path(text);
  require(folded.starts_with('/') && policy::folded_path(folded) == folded);
  require(policy::path_holds("/", folded) && policy::path_holds(folded, folded));
  std::vector<policy::Mount> mounts;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find('\t'));
    text.remove_prefix(word.size() < text.size() ? word.size() + 1 : word.size());
    try_mount(word, mounts);
  }
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      require(!policy::path_holds(mounts[i].target, mounts[j].target));
      require(!policy::path_holds(mounts[j].target, mounts[i].target));
    }
  }
  return 0;
}
