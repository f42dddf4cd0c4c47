#include "backends/microvm/module_file.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/files.h"
#include "kernel/program.h"
#include "sandbox/builder.h"

namespace carrel::microvm {

namespace {

constexpr std::size_t kLargestModuleFile = 16U << 20;
constexpr char kXz[] = "/usr/bin/xz";

Error unreadable(const std::string& path, const std::string& why, std::string hint = {}) {
  if (hint.empty()) {
    hint = "install the kernel's package again, or name a kernel with CARREL_VM_KERNEL";
  }
  return Error{Code::kUnsupported, 0,
               "the module " + path + " of the machine's kernel cannot be read: " + why,
               std::move(hint)};
}

bool ends_well(pid_t process) {
  int status = 1;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

// By the program xz: linking liblzma costs every start of ours the instructions by which it asks
// the processor what it can do.
Result<std::string> unpack_xz(const std::string& file) {
  if (::access(kXz, X_OK) != 0) {
    return unreadable(file, std::string("there is no ") + kXz, "install the package 'xz-utils'");
  }
  CARREL_ASSIGN(const UniqueFd content, sandbox::memory_file({}));
  kernel::ProgramRequest request;
  request.path = kXz;
  request.arguments = {"xz", "--decompress", "--stdout", "--", file};
  request.output = content.get();
  CARREL_ASSIGN(const kernel::Program program, kernel::start_program(request));
  if (!ends_well(program.pid)) {
    return unreadable(file, "it is damaged");
  }
  auto unpacked =
      read_file_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(content.get()), kLargestModuleFile);
  return unpacked.ok() ? std::move(unpacked) : unreadable(file, "it is too large");
}

// Not every file says how large its content is, so the room grows until that fits.
Result<std::string> unpack_zstd_file(const std::string& file) {
  CARREL_ASSIGN(const std::string packed, read_file_at(AT_FDCWD, file, kLargestModuleFile));
  constexpr std::size_t kUsualRatio = 4;
  if (packed.empty()) {
    return unreadable(file, "it is empty");
  }
  std::string out;
  for (std::size_t room = packed.size() * kUsualRatio; out.size() < kLargestModuleFile; room *= 2) {
    out.assign(std::min(room, kLargestModuleFile), '\0');
    const std::size_t written =
        ::ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size());
    if (::ZSTD_isError(written) == 0) {
      out.resize(written);
      return out;
    }
  }
  return unreadable(file, "it is damaged, or too large");
}

}  // namespace

Result<std::string> read_module(const std::string& path) {
  if (::access((path + ".xz").c_str(), F_OK) == 0) {
    return unpack_xz(path + ".xz");
  }
  if (::access((path + ".zst").c_str(), F_OK) == 0) {
    return unpack_zstd_file(path + ".zst");
  }
  auto plain = read_file_at(AT_FDCWD, path, kLargestModuleFile);
  return plain.ok() ? std::move(plain) : unreadable(path, plain.error().to_string());
}

}  // namespace carrel::microvm
