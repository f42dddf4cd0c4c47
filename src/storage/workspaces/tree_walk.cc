#include "storage/workspaces/tree_walk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "base/files.h"
#include "base/open_below.h"
#include "storage/workspaces/layer_writer.h"

namespace carrel::storage {

namespace {

using Part = WalkedDirectory::Part;

// A tree of which less is known is walked by one thread: starting another costs as much.
constexpr std::size_t kManyEntries = 1000;
constexpr std::size_t kMostThreads = 8;

Error too_much(const std::string& what, const std::string& path) {
  constexpr std::size_t kShown = 100;  // of a path that may be as long as it likes
  const std::string begins = path.size() > kShown ? path.substr(0, kShown) + "..." : path;
  return Error{Code::kResource, 0, "the workspace has " + what + " at '" + begins + "'", {}};
}

bool is_opaque(int directory) {
  char value = '\0';
  return ::fgetxattr(directory, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

// Keeps the calling thread on one processor as long as it lives. Threads that begin together are
// otherwise on one processor for some milliseconds, beside another that is idle.
class OnProcessor {
 public:
  OnProcessor(const cpu_set_t& allowed, int processor) : allowed_(allowed) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(processor), &one);
    moved_ = ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;
  ~OnProcessor() {
    if (moved_) {
      ::sched_setaffinity(0, sizeof allowed_, &allowed_);
    }
  }

 private:
  cpu_set_t allowed_;
  bool moved_;
};

// Those that this thread may use, beginning with the one that it is on.
std::vector<int> processors(cpu_set_t& allowed) {
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return {};
  }
  std::vector<int> all;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<std::size_t>(i), &allowed)) {
      all.push_back(i);
    }
  }
  const auto here = std::find(all.begin(), all.end(), ::sched_getcpu());
  std::rotate(all.begin(), here, all.end());
  return all;
}

void add_same(std::vector<Part>& parts, std::uint32_t record) {
  if (!parts.empty() && parts.back().kind == Part::Kind::kSame && parts.back().last == record) {
    ++parts.back().last;
  } else {
    parts.push_back({Part::Kind::kSame, record, record + 1});
  }
}

std::string join(const std::string& directory, const char* name) {
  return directory.empty() ? name : directory + "/" + name;
}

}  // namespace

Status TreeWalk::run(WalkedDirectory& top) {
  waiting_.push_back(&top);
  const bool many = options_.index != nullptr && options_.index->size() > kManyEntries;
  cpu_set_t allowed;
  std::vector<int> places = many ? processors(allowed) : std::vector<int>();
  places.resize(std::min(places.size(), kMostThreads));
  std::vector<std::thread> others;
  try {
    // This thread makes room for the first of the others, which begins where it is made.
    for (std::size_t i = 0; i + 1 < places.size(); ++i) {
      others.emplace_back([this, &allowed, place = places[i]] {
        const OnProcessor here(allowed, place);
        work();
      });
    }
  } catch (const std::system_error&) {
    // Fewer do as well.
  }
  if (others.empty()) {
    work();
  } else {
    const OnProcessor here(allowed, places.back());
    work();
  }
  for (std::thread& other : others) {
    other.join();
  }
  return std::move(failure_);
}

void TreeWalk::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || busy_ == 0; });
    if (waiting_.empty()) {
      return;
    }
    WalkedDirectory* directory = waiting_.back();
    waiting_.pop_back();
    ++busy_;
    lock.unlock();
    Status looked = look_into(*directory);
    lock.lock();
    --busy_;
    if (looked.ok() && failure_.ok()) {
      for (WalkedDirectory& below : directory->directories) {
        waiting_.push_back(&below);
      }
    } else {
      waiting_.clear();
      if (failure_.ok()) {
        failure_ = std::move(looked);
      }
    }
    if (busy_ == 0 || !waiting_.empty()) {
      changed_.notify_all();
    }
  }
}

Status TreeWalk::look_into(WalkedDirectory& directory) {
  if (directory.depth > kMaxTreeDepth) {
    return too_much("more than " + std::to_string(kMaxTreeDepth) + " directories in each other",
                    directory.path);
  }
  if (directory.quiet) {
    return trust(directory);
  }
  const auto fd = open_below(root_, directory.path, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) {
    directory.elsewhere = fd.error().error_number == EXDEV;
    return directory.elsewhere ? Status{} : Status{fd.error()};
  }
  if (options_.watch != nullptr) {
    options_.watch->add(fd.value().get());
  }
  if (directory.certain) {
    return look_again(fd.value().get(), directory);
  }
  directory.self.opaque = form_ == TreeForm::kUpper && is_opaque(fd.value().get());
  return list(fd.value().get(), directory);
}

bool TreeWalk::is_quiet(std::uint32_t record) const {
  return options_.watch != nullptr && options_.watch->is_quiet((*options_.index)[record].inode);
}

// Everything in it is what the index says; directories below it may not be.
Status TreeWalk::trust(WalkedDirectory& directory) {
  const TreeIndex& index = *options_.index;
  const IndexRecord& self = index[*directory.record];
  const std::size_t begins = self.path_size == 0 ? 0 : self.path_size + 1U;
  UniqueFd fd;
  for (std::uint32_t i = *directory.record + 1; i < self.end; i = index[i].end) {
    if (index[i].kind != EntryKind::kDirectory) {
      add_same(directory.parts, i);
      continue;
    }
    const char* name = index.path(i).data() + begins;
    if (is_quiet(i)) {
      CARREL_TRY(count(directory, name));
      WalkedDirectory& below = enter(directory, name, i);
      below.certain = true;
      below.quiet = true;
      continue;
    }
    if (!fd.valid()) {
      CARREL_ASSIGN(fd, open_below(root_, directory.path, O_RDONLY | O_DIRECTORY));
    }
    CARREL_TRY(look_at(fd.get(), directory, name, i));
  }
  directory.self.left_out = self.left_out;
  return {};
}

// It has the names that the index says.
Status TreeWalk::look_again(int fd, WalkedDirectory& directory) {
  const TreeIndex& index = *options_.index;
  const IndexRecord& self = index[*directory.record];
  const std::size_t begins = self.path_size == 0 ? 0 : self.path_size + 1U;
  std::optional<InodeTables::Reader> inodes;
  if (options_.tables != nullptr) {
    inodes.emplace(*options_.tables);
  }
  for (std::uint32_t i = *directory.record + 1; i < self.end; i = index[i].end) {
    const char* name = index.path(i).data() + begins;
    if (!inodes.has_value() || !is_same(*inodes, i)) {
      CARREL_TRY(look_at(fd, directory, name, i));
    } else if (index[i].kind != EntryKind::kDirectory) {
      add_same(directory.parts, i);
    } else {
      CARREL_TRY(count(directory, name));
      enter(directory, name, i).certain = true;
    }
  }
  directory.self.left_out = self.left_out;
  return {};
}

// Whether the inode of a record is as it was. That its name leads to it is certain.
bool TreeWalk::is_same(InodeTables::Reader& inodes, std::uint32_t record) const {
  const IndexRecord& before = (*options_.index)[record];
  const auto info = inodes.look(before.inode);
  return info.has_value() && is_certain(before, describe(*info), options_.index->began_ns()) &&
         (before.kind != EntryKind::kFile ||
          (S_ISREG(info->st_mode) && info->st_nlink == 1 && before.target_size == 0));
}

Status TreeWalk::count(const WalkedDirectory& in, const char* name) {
  return seen_.fetch_add(1, std::memory_order_relaxed) < kMaxTreeEntries
             ? Status{}
             : Status{too_much("more than " + std::to_string(kMaxTreeEntries) + " files",
                               join(in.path, name))};
}

WalkedDirectory& TreeWalk::enter(WalkedDirectory& in, const char* name,
                                 std::optional<std::uint32_t> record) {
  const auto place = static_cast<std::uint32_t>(in.directories.size());
  in.parts.push_back({Part::Kind::kDirectory, place, place + 1});
  WalkedDirectory& below = in.directories.emplace_back();
  below.path = join(in.path, name);
  below.depth = in.depth + 1;
  below.record = record;
  return below;
}

Status TreeWalk::list(int fd, WalkedDirectory& directory) {
  CARREL_ASSIGN(const std::vector<std::string> names, list_directory(fd));
  const TreeIndex nothing;
  const TreeIndex& index = directory.record.has_value() ? *options_.index : nothing;
  const std::uint32_t end = directory.record.has_value() ? index[*directory.record].end : 0;
  std::uint32_t known = directory.record.has_value() ? *directory.record + 1 : 0;
  const std::size_t begins = directory.path.empty() ? 0 : directory.path.size() + 1;
  for (const std::string& name : names) {
    if (begins + name.size() > kMaxTreePath) {
      return too_much("a path of more than " + std::to_string(kMaxTreePath) + " bytes",
                      join(directory.path, name.c_str()));
    }
    if (!options_.without.empty() &&
        options_.without.contains(join(directory.path, name.c_str()))) {
      continue;
    }
    while (known < end && index.path(known).substr(begins) < name) {
      known = index[known].end;
    }
    const bool same = known < end && index.path(known).substr(begins) == name;
    CARREL_TRY(look_at(fd, directory, name.c_str(),
                       same ? std::optional<std::uint32_t>(known) : std::nullopt));
  }
  return {};
}

Status TreeWalk::look_at(int fd, WalkedDirectory& in, const char* name,
                         std::optional<std::uint32_t> record) {
  struct stat info{};
  if (::fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    // Somebody who is not frozen removed it.
    return errno == ENOENT ? Status{}
                           : Status{system_error("look at '" + join(in.path, name) + "'")};
  }
  ScannedEntry found = describe(info);
  const mode_t type = info.st_mode & S_IFMT;
  const bool hides = form_ == TreeForm::kUpper && type == S_IFCHR && info.st_rdev == makedev(0, 0);
  found.kind = hides ? EntryKind::kGone : found.kind;
  const IndexRecord* before = record.has_value() ? &(*options_.index)[*record] : nullptr;
  const bool certain = before != nullptr && is_certain(*before, found, options_.index->began_ns());
  if (options_.watch != nullptr && found.names > 1) {
    options_.watch->give_up();
  }
  // A file with several names is described: which of them is the first is not known yet.
  const bool several = type == S_IFREG && (found.names > 1 || (certain && before->target_size > 0));
  if (certain && !several && type != S_IFDIR) {
    add_same(in.parts, *record);
    return {};
  }
  CARREL_TRY(count(in, name));
  if (type == S_IFDIR && info.st_dev == device_) {
    const bool known = before != nullptr && before->kind == EntryKind::kDirectory;
    WalkedDirectory& below = enter(in, name, known ? record : std::nullopt);
    below.certain = certain;
    below.quiet = certain && is_quiet(*record);
    found.path = below.path;
    below.self = std::move(found);
    return {};
  }
  if (type == S_IFREG || type == S_IFLNK || type == S_IFIFO || hides) {
    return add(fd, in, name, std::move(found));
  }
  ++in.self.left_out;
  return {};
}

Status TreeWalk::add(int fd, WalkedDirectory& in, const char* name, ScannedEntry found) {
  found.path = join(in.path, name);
  if (found.kind == EntryKind::kLink) {
    std::array<char, 4097> target{};
    const ssize_t n = ::readlinkat(fd, name, target.data(), target.size());
    if (n < 0) {
      return system_error("read the link '" + found.path + "'");
    }
    found.target.assign(target.data(), static_cast<std::size_t>(n));
  }
  if (found.kind == EntryKind::kFile && options_.write_back) {
    write_back(fd, name);
  }
  const auto place = static_cast<std::uint32_t>(in.entries.size());
  in.parts.push_back({Part::Kind::kEntry, place, place + 1});
  in.entries.push_back(std::move(found));
  return {};
}

// Nobody waits for it.
void TreeWalk::write_back(int fd, const char* name) {
  constexpr std::uint64_t kMost = 256;  // of more the disk has enough to do with the first
  if (sent_.fetch_add(1, std::memory_order_relaxed) < kMost) {
    const UniqueFd file(::openat(fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (file.valid()) {
      ::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    }
  }
}

}  // namespace carrel::storage
