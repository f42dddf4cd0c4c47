#include "storage/workspaces/tree_scan.h"

#include <ctime>
#include <string>
#include <unordered_map>
#include <utility>

#include "storage/workspaces/tree_walk.h"

namespace carrel::storage {

namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Lays what was found in each directory behind each other.
class Collector {
 public:
  Collector(TreeScan& scan, const TreeIndex* index) : scan_(scan), index_(index) {}

  Status directory(WalkedDirectory& walked) {
    if (walked.elsewhere) {
      ++scan_.left_out;
      return {};
    }
    scan_.left_out += walked.self.left_out;
    if (walked.depth > 0 && walked.certain) {
      same(*walked.record, *walked.record + 1);
    } else if (walked.depth > 0) {
      entry(std::move(walked.self));
    }
    for (const WalkedDirectory::Part& part : walked.parts) {
      switch (part.kind) {
        case WalkedDirectory::Part::Kind::kSame:
          same(part.first, part.last);
          break;
        case WalkedDirectory::Part::Kind::kEntry:
          entry(std::move(walked.entries[part.first]));
          break;
        case WalkedDirectory::Part::Kind::kDirectory:
          CARREL_TRY(directory(walked.directories[part.first]));
          break;
      }
    }
    return scan_.bytes <= kMaxTreeBytes
               ? Status{}
               : Status{Error{Code::kResource,
                              0,
                              "the workspace has more than " + std::to_string(kMaxTreeBytes >> 30) +
                                  " GiB at '" + walked.path + "'",
                              {}}};
  }

 private:
  void same(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t i = first; i < last; ++i) {
      scan_.bytes += (*index_)[i].size;
    }
    if (!scan_.parts.empty() && !scan_.parts.back().is_entry() &&
        scan_.parts.back().last == first) {
      scan_.parts.back().last = last;
    } else {
      scan_.parts.push_back({first, last});
    }
  }

  void entry(ScannedEntry found) {
    if (found.names > 1) {
      auto [first, unknown] = linked_.try_emplace(found.evidence.inode, found.path);
      found.target = unknown ? "" : first->second;
    }
    scan_.bytes += found.kind == EntryKind::kFile && found.target.empty() ? found.size : 0;
    scan_.parts.emplace_back();
    scan_.entries.push_back(std::move(found));
  }

  TreeScan& scan_;
  const TreeIndex* index_;
  std::unordered_map<std::uint64_t, std::string> linked_;  // files with several names: the first
};

}  // namespace

ScannedEntry describe(const struct stat& info) {
  ScannedEntry entry;
  entry.kind = S_ISDIR(info.st_mode)    ? EntryKind::kDirectory
               : S_ISLNK(info.st_mode)  ? EntryKind::kLink
               : S_ISFIFO(info.st_mode) ? EntryKind::kPipe
                                        : EntryKind::kFile;
  // A set-id bit of a file that the workload owns gives nobody anything, and is not kept.
  entry.mode = S_ISLNK(info.st_mode) ? 0777U : info.st_mode & 01777U;
  entry.size = S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
  entry.mtime_ns = nanoseconds(info.st_mtim);
  entry.evidence.inode = info.st_ino;
  entry.evidence.ctime_ns = nanoseconds(info.st_ctim);
  entry.names = S_ISREG(info.st_mode) ? info.st_nlink : 1;
  return entry;
}

TreeIndex TreeScan::make_index(const TreeIndex& index) const {
  IndexBuilder builder(index.size() + entries.size() + 1);
  builder.add(top);
  auto next = entries.begin();
  for (const ScanPart& part : parts) {
    if (part.is_entry()) {
      builder.add(*next++);
    } else {
      builder.add(index, part.first, part.last);
    }
  }
  return builder.finish(began_ns);
}

Result<TreeScan> scan_tree(int root, TreeForm form, const ScanOptions& options) {
  struct stat info{};
  if (::fstat(root, &info) != 0) {
    return system_error("look at the workspace");
  }
  TreeScan scan;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  scan.began_ns = nanoseconds(now);
  WalkedDirectory top;
  top.self = describe(info);
  if (options.index != nullptr && options.index->size() > 0) {
    top.record = 0;
    top.certain = is_certain((*options.index)[0], top.self, options.index->began_ns());
    top.quiet = top.certain && options.watch != nullptr &&
                options.watch->is_quiet((*options.index)[0].inode);
  }
  CARREL_TRY(TreeWalk(root, info.st_dev, form, options).run(top));
  scan.top = top.self;
  CARREL_TRY(Collector(scan, options.index).directory(top));
  return scan;
}

}  // namespace carrel::storage
