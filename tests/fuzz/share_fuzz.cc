// A hostile machine that writes to a tree of the host's: any messages of FUSE, one after the other.
// Whatever they say, nothing beside the tree is touched, no device and no set-id file is made in
// it, and tables stay within their bounds.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "backends/microvm/fuse_message.h"
#include "backends/microvm/share.h"

namespace {

using carrel::UniqueFd;
using carrel::microvm::fuse_size;
using carrel::microvm::FuseReply;
using carrel::microvm::FuseRequest;
using carrel::microvm::parse_fuse;
using carrel::microvm::Share;
using carrel::microvm::ShareMode;
namespace fs = std::filesystem;

constexpr std::size_t kFiles = 16;
constexpr std::size_t kHandles = 4;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

// A folder of this process's own, with something beside the tree.
struct Place {
  std::string path = (fs::temp_directory_path() / "share-fuzz-XXXXXX").string();
  Place() {
    require(::mkdtemp(path.data()) != nullptr);
    std::ofstream(path + "/beside") << "beside";
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

const std::string& place() {
  static const Place kPlace;
  return kPlace.path;
}

void make_tree(const std::string& top) {
  fs::remove_all(top);
  fs::create_directories(top + "/folder");
  std::ofstream(top + "/file") << "text";
  std::ofstream(top + "/folder/file") << "text";
  fs::create_symlink("../beside", top + "/link");
  fs::create_symlink("..", top + "/folder/up");
}

void check_tree(const std::string& top) {
  struct stat info{};
  require(::stat((place() + "/beside").c_str(), &info) == 0 && info.st_size == 6 &&
          info.st_nlink == 1);
  std::size_t beside = 0;
  for (const auto& entry : fs::directory_iterator(place())) {
    beside += entry.path().filename().empty() ? 0U : 1U;
  }
  require(beside == 2);
  std::error_code unreadable;
  for (const auto& entry : fs::recursive_directory_iterator(
           top, fs::directory_options::skip_permission_denied, unreadable)) {
    require(::lstat(entry.path().c_str(), &info) == 0);
    require((info.st_mode & (S_ISUID | S_ISGID)) == 0);
    require(!S_ISCHR(info.st_mode) && !S_ISBLK(info.st_mode));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string top = place() + "/tree";
  make_tree(top);
  const UniqueFd descriptors(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  Share share(UniqueFd(::open(top.c_str(), O_PATH | O_CLOEXEC)), ShareMode::kReadWrite,
              descriptors.get(), {.files = kFiles, .handles = kHandles});
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (;;) {
    fuse_in_header header{};
    if (rest.size() < sizeof header) {
      break;
    }
    std::memcpy(&header, rest.data(), sizeof header);
    const std::size_t whole = fuse_size(header);
    FuseRequest request;
    FuseReply reply;
    if (whole == 0 || whole > rest.size() || !parse_fuse(rest.substr(0, whole), request) ||
        !share.answer(request, reply)) {
      break;
    }
    const std::string answer = reply.encode(request.unique);
    require(answer.size() <= carrel::microvm::kLargestFuse);
    require(share.known() <= kFiles && share.handles() <= kHandles);
    rest.remove_prefix(whole);
  }
  check_tree(top);
  return 0;
}
