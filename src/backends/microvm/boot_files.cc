#include "backends/microvm/boot_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

#include "backends/microvm/kernel_image.h"
#include "backends/microvm/module_file.h"
#include "base/files.h"
#include "guest/machine.h"
#include "sandbox/builder.h"

namespace carrel::microvm {

namespace {

constexpr std::size_t kLargestModule = 16U << 20;
constexpr char kHint[] =
    "install the package 'linux-image-cloud-amd64', or name a kernel with CARREL_VM_KERNEL";

Error unsupported(std::string message, std::string hint = kHint) {
  return Error{Code::kUnsupported, 0, std::move(message), std::move(hint)};
}

// Numbers in a name count as numbers: 6.1.0-9 is older than 6.1.0-54.
bool is_newer(const std::string& one, const std::string& other) {
  return ::strverscmp(one.c_str(), other.c_str()) > 0;
}

std::string newest_kernel() {
  std::string newest;
  (void)each_visible_entry_at(AT_FDCWD, "/boot", [&](const dirent& entry) {
    const std::string name = entry.d_name;
    if (name.starts_with("vmlinuz-") && name.find("-cloud-") != std::string::npos &&
        (newest.empty() || is_newer(name, newest))) {
      newest = name;
    }
  });
  return newest.empty() ? newest : "/boot/" + newest;
}

// Where a kernel's image tells its release: its header by the boot protocol of x86, or what it says
// first when it is not compressed. Past the end: nowhere.
std::size_t find_release(std::string_view image) {
  constexpr std::size_t kMagicAt = 0x202;
  constexpr std::size_t kVersionAt = 0x20e;
  if (is_kernel_program(image)) {
    constexpr std::string_view kWords = "Linux version ";
    const std::size_t at = image.find(kWords);
    return at == std::string_view::npos ? at : at + kWords.size();
  }
  if (image.size() < kVersionAt + 2 || image.substr(kMagicAt, 4) != "HdrS") {
    return std::string_view::npos;
  }
  return 0x200U + static_cast<unsigned char>(image[kVersionAt]) +
         256U * static_cast<unsigned char>(image[kVersionAt + 1]);
}

std::string release_in(std::string_view head) {
  const std::size_t at = find_release(head);
  if (at >= head.size()) {
    return {};
  }
  constexpr std::size_t kLongest = 100;
  const std::string_view text = head.substr(at, kLongest);
  const std::string release(text.substr(0, text.find_first_of(std::string_view(" \0", 2))));
  // It becomes part of a path.
  const bool plain = std::all_of(release.begin(), release.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_' || c == '+' || c == '~';
  });
  return plain && !release.starts_with(".") ? release : std::string();
}

// Beside the kernel's own folder if it is in a "boot", else where the host has modules.
std::string folder_of_modules(const std::string& kernel, const std::string& release) {
  std::vector<std::string> tops;
  if (const std::size_t at = kernel.rfind("/boot/"); at != std::string::npos) {
    tops.push_back(kernel.substr(0, at));
  }
  tops.emplace_back();
  for (const std::string& top : tops) {
    for (const char* folder : {"/lib/modules/", "/usr/lib/modules/"}) {
      std::string path = top + folder + release;
      if (::access((path + "/modules.order").c_str(), R_OK) == 0) {
        return path;
      }
    }
  }
  return {};
}

std::string plain_name(std::string_view path) {
  std::string name(path.substr(path.rfind('/') + 1));
  name = name.substr(0, name.find(".ko"));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The modules of one kernel, by their names.
class Modules {
 public:
  explicit Modules(const BootKernel& kernel) : kernel_(kernel) {}

  Status read() {
    CARREL_ASSIGN(order_,
                  read_file_at(AT_FDCWD, kernel_.modules + "/modules.order", kLargestModule));
    if (auto text = read_file_at(AT_FDCWD, kernel_.modules + "/modules.builtin", kLargestModule);
        text.ok()) {
      each_line(text.value(), [&](std::string_view line) { builtin_.insert(plain_name(line)); });
    }
    each_line(order_, [&](std::string_view line) { paths_.emplace_back(line); });
    return {};
  }

  // Adds the module after those that it depends on.
  Status add(const std::string& name, std::vector<std::string>& list) {
    if (builtin_.contains(name) || added_.contains(name)) {
      return {};
    }
    added_.insert(name);
    const auto found = std::find_if(paths_.begin(), paths_.end(), [&](const std::string& path) {
      return plain_name(path) == name;
    });
    if (found == paths_.end()) {
      return unsupported("the kernel " + kernel_.release + " has no module '" + name + "'");
    }
    const std::string path = kernel_.modules + "/" + *found;
    CARREL_ASSIGN(const std::string content, read_module(path));
    // "depends=virtio,virtio_ring", as one of the strings about the module.
    constexpr std::string_view kWord("\0depends=", 9);
    const std::size_t at = content.find(kWord);
    std::string needed = at == std::string::npos ? "" : content.c_str() + at + kWord.size();
    while (!needed.empty()) {
      const std::size_t comma = std::min(needed.find(','), needed.size());
      CARREL_TRY(add(plain_name(needed.substr(0, comma)), list));
      needed.erase(0, comma + 1);
    }
    list.push_back(path);
    return {};
  }

 private:
  template <typename Visit>
  static void each_line(std::string_view text, Visit visit) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      if (end > 0) {
        visit(text.substr(0, end));
      }
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  const BootKernel& kernel_;
  std::string order_;
  std::vector<std::string> paths_;
  std::set<std::string> builtin_;
  std::set<std::string> added_;
};

void add_entry(std::string& out, const std::string& name, unsigned mode, std::string_view content) {
  static constexpr std::size_t kAlign = 4;
  std::array<char, 128> head{};
  std::snprintf(head.data(), head.size(),
                "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", 0U, mode, 0U, 0U, 1U,
                0U, static_cast<unsigned>(content.size()), 0U, 0U, 0U, 0U,
                static_cast<unsigned>(name.size() + 1), 0U);
  out += head.data();
  out.append(name.c_str(), name.size() + 1);
  out.resize((out.size() + kAlign - 1) / kAlign * kAlign);
  out += content;
  out.resize((out.size() + kAlign - 1) / kAlign * kAlign);
}

}  // namespace

std::string usual_kernel() {
  const char* const named = std::getenv("CARREL_VM_KERNEL");
  return named == nullptr ? std::string() : std::string(named);
}

Result<BootKernel> find_kernel(const std::string& path) {
  BootKernel kernel;
  kernel.path = path.empty() ? newest_kernel() : path;
  if (kernel.path.empty()) {
    return unsupported("there is no kernel for a machine: no /boot/vmlinuz-*-cloud-*");
  }
  auto image = read_file_at(AT_FDCWD, kernel.path, kLargestKernel);
  if (!image.ok()) {
    return unsupported("the kernel '" + kernel.path +
                       "' cannot be read: " + image.error().to_string());
  }
  kernel.release = release_in(image.value());
  if (kernel.release.empty()) {
    return unsupported("'" + kernel.path + "' is no Linux kernel of x86");
  }
  kernel.modules = folder_of_modules(kernel.path, kernel.release);
  return kernel;
}

Result<std::vector<std::string>> modules_of(const BootKernel& kernel, const MachineParts& parts) {
  std::vector<std::string> list;
  if (kernel.modules.empty()) {
    return list;  // everything is built in, or the machine will say what is not
  }
  Modules modules(kernel);
  CARREL_TRY(modules.read());
  const char* const line =
      parts.line == MachineParts::Line::kVsock ? "vmw_vsock_virtio_transport" : "virtio_console";
  std::vector<const char*> names = {"virtio_mmio", "virtio_pci", "virtio_blk",
                                    line,          "erofs",      "overlay"};
  if (!parts.trees.empty()) {
    names.push_back("fuse");
  }
  if (!parts.network.empty()) {
    // What kernel/captive_network asks for.
    names.insert(names.end(), {"nf_tables", "nft_chain_nat", "nft_redir", "nft_reject_inet"});
  }
  for (const char* name : names) {
    CARREL_TRY(modules.add(name, list));
  }
  return list;
}

std::string make_archive(const std::vector<ArchiveFile>& files) {
  std::string out;
  for (const ArchiveFile& file : files) {
    add_entry(out, file.path, file.mode | S_IFREG, file.content);
  }
  add_entry(out, "TRAILER!!!", 0, {});
  return out;
}

std::string terms_of(const MachineParts& parts) {
  std::string terms =
      parts.clients == MachineParts::Clients::kListens ? guest::kTermListens : guest::kTermOnce;
  terms += "\n";
  if (!parts.network.empty()) {
    terms += guest::kTermNetwork + parts.network + "\n";
  }
  for (const MachineParts::Tree tree : parts.trees) {
    terms += tree == MachineParts::Tree::kFile ? guest::kTermFile : guest::kTermFolder;
    terms += "\n";
  }
  return terms;
}

MachineParts every_part() {
  MachineParts parts;
  parts.network = "any";
  parts.trees = {MachineParts::Tree::kFolder};
  return parts;
}

Result<UniqueFd> make_first_files(const BootKernel& kernel, int program,
                                  const MachineParts& parts) {
  std::vector<ArchiveFile> files;
  CARREL_ASSIGN(std::string guest,
                read_file_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(program), kLargestModule));
  files.push_back({"init", std::move(guest), 0755});
  CARREL_ASSIGN(const std::vector<std::string> modules, modules_of(kernel, parts));
  std::string order;
  for (const std::string& path : modules) {
    CARREL_ASSIGN(std::string content, read_module(path));
    std::string name = plain_name(path) + ".ko";
    order += "/" + name + "\n";
    files.push_back({std::move(name), std::move(content)});
  }
  files.push_back({std::string(guest::kMachineModules).substr(1), std::move(order)});
  return sandbox::memory_file(make_archive(files));
}

}  // namespace carrel::microvm
