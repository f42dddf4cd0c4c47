#include "storage/images/build_debian.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/files.h"
#include "storage/images/apt_sources.h"
#include "storage/images/builder.h"
#include "storage/images/builder_room.h"
#include "storage/images/image_store.h"
#include "storage/state.h"

namespace carrel::storage {

namespace {

bool is_package(std::string_view name) {
  return !name.empty() && name.size() <= 100 && name.front() != '-' && name.front() != '+' &&
         name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
                  c == '.';
         });
}

// A directory that the builder's root may write to, and that is gone afterwards.
class BuilderPlace {
 public:
  BuilderPlace() = default;
  BuilderPlace(const BuilderPlace&) = delete;
  BuilderPlace& operator=(const BuilderPlace&) = delete;
  ~BuilderPlace() {
    const std::size_t slash = path_.rfind('/');
    if (slash != std::string::npos) {
      const auto parent = open_at(AT_FDCWD, path_.substr(0, slash + 1), O_RDONLY | O_DIRECTORY);
      if (parent.ok()) {
        (void)remove_tree_at(parent.value().get(), path_.substr(slash + 1));
      }
    }
  }

  Status make() {
    const char* folder = ::secure_getenv("TMPDIR");
    path_ = std::string(folder == nullptr || *folder != '/' ? "/tmp" : folder) + "/carrel-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
      path_.clear();
      return system_error("make a temporary directory");
    }
    // As root all of it is the builder's; otherwise its ids have to get in.
    const bool root = ::geteuid() == 0;
    for (const std::string& path : {path_ + "/build", path_ + "/root", path_}) {
      if ((path != path_ && ::mkdir(path.c_str(), 0700) != 0) ||
          (root && ::chown(path.c_str(), kFirstBuilderId, kFirstBuilderId) != 0) ||
          ::chmod(path.c_str(), root || path != path_ ? 0700 : 0711) != 0) {
        return system_error("give '" + path_ + "' to the builder");
      }
    }
    return {};
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::string> arguments_for(const DebianBuild& request) {
  std::vector<std::string> words = {"--mode=unshare",
                                    "--variant=essential",
                                    "--format=tar",
                                    "--aptopt=Acquire::Languages \"none\"",
                                    "--dpkgopt=force-unsafe-io",
                                    "--dpkgopt=path-exclude=/usr/share/man/*",
                                    "--dpkgopt=path-exclude=/usr/share/locale/*",
                                    "--dpkgopt=path-exclude=/usr/share/doc/*",
                                    "--dpkgopt=path-include=/usr/share/doc/*/copyright"};
  for (const std::string& package : request.packages) {
    words.push_back("--include=" + package);
  }
  words.push_back(request.suite);
  words.emplace_back("-");
  for (std::string& line : lines_for_suite(read_apt_sources(), request.suite)) {
    words.push_back(std::move(line));
  }
  return words;
}

std::vector<std::string> environment() {
  const std::string place = kBuilderDirectory;
  std::vector<std::string> variables = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
                                        "HOME=" + place, "TMPDIR=" + place};
  for (const char* name : {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}) {
    if (const char* value = ::secure_getenv(name); value != nullptr) {
      variables.push_back(std::string(name) + "=" + value);
    }
  }
  return variables;
}

// The archive in the downloads, locked so that nobody takes it for one that broke off.
Result<Imported> build(const Home& home, const DebianBuild& request, const std::string& program) {
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  CARREL_ASSIGN(const UniqueFd downloads, store.open_downloads());
  const std::string file = "debian-" + random_hex(16) + ".tar";
  CARREL_ASSIGN(const UniqueFd archive,
                open_at(downloads.get(), file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  (void)::flock(archive.get(), LOCK_EX);
  BuilderPlace place;
  CARREL_TRY(place.make());
  BuilderRun run;
  run.arguments = arguments_for(request);
  run.environment = environment();
  run.place = place.path();
  run.trees = local_mirrors(read_apt_sources());
  run.output = archive.get();
  run.listener = [&](const std::string& line) {
    if (request.listener) {
      request.listener({line});
    }
  };
  auto built = run_builder(program, run);
  ImportRequest import;
  import.source = home.path() + "/images/downloads/" + file;
  import.name = request.name.empty() ? "debian:" + request.suite : request.name;
  import.listener = request.listener;
  auto imported = built.ok() ? import_image(home, import)
                             : Result<std::vector<Imported>>(std::move(built.error()));
  (void)::unlinkat(downloads.get(), file.c_str(), 0);
  if (!imported.ok()) {
    return imported.error();
  }
  return imported.value().front();
}

}  // namespace

Result<Imported> build_debian(const Home& home, const DebianBuild& request) {
  for (const std::string& package : request.packages) {
    if (!is_package(package)) {
      return Error{Code::kInvalid, 0, "'" + package + "' is not the name of a Debian package",
                   "lower-case letters, digits, '+', '-' and '.'"};
    }
  }
  CARREL_ASSIGN(const std::string program, find_builder());
  auto built = build(home, request, program);
  if (!built.ok()) {
    built.error().message = "build an image of " + request.suite + ": " + built.error().message;
  }
  return built;
}

}  // namespace carrel::storage
