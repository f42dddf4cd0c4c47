#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/files.h"
#include "sandbox/file_stream.h"
#include "sandbox/guest_stream.h"

namespace carrel::sandbox {

// What is known of one file. Names are bytes and come from the sandbox: show them with care.
struct FileInfo {
  protocol::FileKind kind = protocol::FileKind::kFile;
  unsigned mode = 0;
  std::uint64_t size = 0;
  std::uint64_t modified_ns = 0;
  std::string path;    // relative to what was asked for; empty: that itself
  std::string target;  // of a link
};

// Something that an operation left out, and why, in words.
struct LeftOutFile {
  std::string path;
  std::string reason;
  bool special = false;  // a pipe, a socket or a device
};

// What an operation did.
struct FileSummary {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t value = 0;
  std::uint64_t left_out = 0;          // all of them
  std::vector<LeftOutFile> left_outs;  // the first thousand
};

struct ReadRange {
  enum class Unit { kBytes, kLines };
  Unit unit = Unit::kBytes;
  std::uint64_t from = 0;  // a byte, or a line counted from 1
  std::uint64_t count = protocol::kEverything;
};

struct WriteOptions {
  enum class Old { kReplaced, kRefused, kNeeded };
  Old old = Old::kReplaced;
  std::optional<unsigned> mode;  // without: the old file's, or 0644
  std::uint64_t modified_ns = 0;
};

enum class Depth { kOne, kAll };

// Which names a listing or a search is about.
struct Selection {
  Depth depth = Depth::kOne;
  std::string pattern;                // of names; empty: all
  std::vector<std::string> excluded;  // patterns of names that are left out, with what is below
  bool skip_usual = false;            // see guest/file_text.h
  std::uint64_t most = protocol::kEverything;
};

struct Search {
  std::string text;
  bool ignore_case = false;
};

// Where a tree goes that comes from a sandbox. What it gets is checked as far as that needs no
// disk: paths stay below the top, contents are not longer than announced and follow their file.
class TreeSink {
 public:
  virtual ~TreeSink() = default;
  virtual Status entry(const protocol::FileEntry& entry) = 0;
  virtual Status contents(std::string_view data) = 0;
  virtual Status hole(std::uint64_t size) = 0;
};

// What a tree that goes into a sandbox is told through. Paths are those of is_tree_path().
class TreeFeed {
 public:
  explicit TreeFeed(FileStream& stream) : stream_(stream) {}
  Status entry(const protocol::FileEntry& entry);
  Result<char*> place() { return stream_.place(); }  // for up to protocol::kFilePiece bytes
  void placed(std::size_t size) { stream_.placed(size); }
  Status hole(std::uint64_t size);

 private:
  FileStream& stream_;
};

// "potentially unsafe" for a path with "..", and what else no sandbox can have. Nothing is asked.
Status check_path(std::string_view path);

// The files of a running sandbox, through a worker inside that has the workload's rights and
// limits; paths are the sandbox's, relative ones from its work dir. After an error the session is
// over, unless the error is that of one operation which took no input.
class Files {
 public:
  using Sink = std::function<Status(std::string_view)>;
  // Puts up to that many bytes there; 0 is the end.
  using Source = std::function<Result<std::size_t>(char* place, std::size_t size)>;

  // Takes the connection over. The worker is ended after `timeout`.
  static Result<Files> open(GuestStream stream, std::chrono::milliseconds timeout);

  // A worker that says nothing for so long is given up.
  void set_patience(std::chrono::milliseconds patience) { stream_->set_patience(patience); }

  Result<FileSummary> read(std::string_view path, const ReadRange& range, const Sink& sink);
  Result<FileSummary> write(std::string_view path, const WriteOptions& options,
                            const Source& source);
  Result<FileSummary> append(std::string_view path, const Source& source);
  Result<FileInfo> stat(std::string_view path);
  Result<FileSummary> list(std::string_view path, const Selection& selection,
                           const std::function<Status(const FileInfo&)>& visit);
  Result<FileSummary> search(std::string_view path, const Search& search,
                             const Selection& selection,
                             const std::function<Status(const protocol::FileMatch&)>& visit);
  // The only occurrence of `old_text`; the summary's value is its line.
  Result<FileSummary> replace(std::string_view path, std::string_view old_text,
                              std::string_view new_text);
  Result<FileSummary> move(std::string_view path, std::string_view to);
  Result<FileSummary> copy(std::string_view path, std::string_view to);
  Result<FileSummary> remove(std::string_view path, Depth depth);
  Result<FileSummary> change_mode(std::string_view path, unsigned mode);
  Result<FileSummary> make_directory(std::string_view path, std::optional<unsigned> mode);
  // Who hears what changes. The first error of theirs ends the watching, and is returned.
  struct Watcher {
    std::function<Status()> begun;  // from now on everything is told
    std::function<Status(const protocol::FileChange&)> changed;
    std::function<Status()> quiet = {};  // a few times a second while nothing changes; may be empty
  };
  // Goes on until that, or until the sandbox ends.
  Status watch(std::string_view path, Depth depth, const Watcher& watcher);
  Result<FileSummary> pack(std::string_view path, TreeSink& sink);
  // Below the directory `path`, which is made; `feed` tells the tree.
  Result<FileSummary> unpack(std::string_view path, const std::function<Status(TreeFeed&)>& feed);

 private:
  explicit Files(UniqueFd fd) : stream_(std::make_unique<FileStream>(std::move(fd))) {}

  using Take = std::function<Status(const FileFrame&)>;
  Status send_request(const protocol::FileRequest& request);
  // Takes frames until the operation ends; `take` gets those that are not notes.
  Result<FileSummary> finish(std::string_view path, const Take& take);
  Result<FileSummary> ask(const protocol::FileRequest& request, const Take& take = {});
  Result<FileSummary> send_contents(const protocol::FileRequest& request, const Source& source);
  Status take_note(std::string_view payload);
  // The end of an operation whose input is still being sent.
  Status take_early(const FileFrame& frame, std::string_view path);

  std::unique_ptr<FileStream> stream_;
  FileSummary summary_;
};

}  // namespace carrel::sandbox
