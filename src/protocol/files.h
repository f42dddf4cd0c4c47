#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/message.h"
#include "protocol/wire.h"

// The payloads of a file session: what the host asks a file worker for, and what both sides say
// about files. As in message.h each has one writer and one strict parser.
namespace carrel::protocol {

inline constexpr std::size_t kMaxReplacement = 1U << 20;  // the old and the new text, each
// The largest frame to a file worker: a request with both texts.
inline constexpr std::size_t kMaxFileRequest = 2 * kMaxReplacement + (256U << 10);
inline constexpr std::size_t kFilePiece = 64U << 10;  // of contents in one frame, at most
inline constexpr std::size_t kMaxPattern = 4096;
inline constexpr std::size_t kMaxLineShown = 1024;  // of a line that was searched for
inline constexpr std::size_t kDeepestTree = 128;    // directories below each other
inline constexpr std::uint64_t kEverything = ~0ULL;
inline constexpr std::uint32_t kDefaultMode = ~0U;  // as it is, or that of any new file

enum class FileOperation : std::uint8_t {
  kRead = 1,    // answered with kFileEntry and kFileData
  kWrite = 2,   // kFileData follow, then kFileEnd
  kAppend = 3,  // the same
  kStat = 4,    // kFileEntry
  kList = 5,    // a kFileEntry each
  kSearch = 6,  // a kFileMatch for each line that has `pattern`
  kMove = 7,    // to `other`
  kCopy = 8,    // to `other`
  kRemove = 9,
  kChangeMode = 10,
  kMakeDirectory = 11,  // and those above it
  kWatch = 12,          // a kFileChange each, until the connection ends
  kPack = 13,           // the tree: kFileEntry with kFileData and kFileHole
  kUnpack = 14,         // the same in the other direction, then kFileEnd
  kReplace = 15,        // the only `pattern` in the file by `text`
};
inline constexpr std::uint8_t kLastFileOperation = 15;

enum FileFlags : std::uint32_t {
  kFileRecursive = 1U << 0,   // list, search, remove, watch: all that is below
  kFileLines = 1U << 1,       // read: `from` and `count` are lines, the first is 1
  kFileNew = 1U << 2,         // write: it must not be there yet
  kFileExisting = 1U << 3,    // write: it must be there
  kFileIgnoreCase = 1U << 4,  // search: of ASCII letters
  kFileSkipUsual = 1U << 5,   // list, search: not what tools make; see guest/file_text.h
  kFileAllFlags = 63U,
};

struct FileRequest {
  FileOperation operation = FileOperation::kStat;
  std::uint32_t flags = 0;
  std::uint32_t mode = kDefaultMode;
  std::uint64_t from = 0;             // read: the first byte, or line
  std::uint64_t count = kEverything;  // read: bytes or lines; list, search: answers
  std::uint64_t modified_ns = 0;      // write: since 1970; 0: now
  std::string_view path;              // from the root, or from the sandbox's work dir
  std::string_view other;
  std::string_view pattern;  // list: of names, with * ? and []; search, replace: text
  std::string_view text;
  StringList excluded;  // list, search: names that are left out, with what is below
};

void write_file_request(Writer& writer, const FileRequest& request);
bool parse_file_request(std::string_view payload, FileRequest& request);

enum class FileKind : std::uint8_t {
  kFile = 1,
  kDirectory = 2,
  kLink = 3,          // symbolic; `target` is its text
  kHardLink = 4,      // in a tree: another name of the file `target` of this tree
  kDirectoryEnd = 5,  // in a tree: nothing more comes for this directory; its mode and time count
  kOther = 6,         // a pipe, a socket, a device
};

// A path of an entry is relative to what was asked for; empty is that itself.
struct FileEntry {
  FileKind kind = FileKind::kFile;
  std::uint32_t mode = 0;  // the twelve bits; in a tree without set-id
  std::uint64_t size = 0;
  std::uint64_t modified_ns = 0;
  std::string_view path;
  std::string_view target;
};

void write_file_entry(Writer& writer, const FileEntry& entry);
bool parse_file_entry(std::string_view payload, FileEntry& entry);

// Whether a path stays below where it starts: no "..", ".", empty or missing component, not deeper
// than kDeepestTree. The empty path is one.
bool is_tree_path(std::string_view path);
// Whether a component of the path is "..".
bool climbs(std::string_view path);

// Why something was not done. Where the kernel said no, `error_number` tells.
enum class FileProblem : std::uint8_t {
  kNone = 0,
  kSystem = 1,
  kUnsafe = 2,      // ".." in a path
  kNotRegular = 3,  // a pipe, a device, a socket
  kRange = 4,       // it begins beyond the end; `value` is the size, or the number of lines
  kNoMatch = 5,     // the text to replace is not there
  kMatches = 6,     // it is there `value` times; `detail` lists lines
  kTooLarge = 7,    // to be changed in memory; `value` is the limit
  kTooMany = 8,     // `value` is the limit
  kTooDeep = 9,
  kNotWatchable = 10,  // a file system that tells no changes
  kOutside = 11,       // a path of a tree leads out of it, or through a link
  kChanged = 12,       // a file that shrank while it was read
};
inline constexpr std::uint8_t kLastFileProblem = 12;

// The end of an operation, or something that was left out of one (kFileNote).
struct FileOutcome {
  FileProblem problem = FileProblem::kNone;
  std::uint32_t error_number = 0;
  std::uint64_t value = 0;
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t left_out = 0;  // notes, those that were not sent included
  std::string_view path;
  std::string_view detail;
};

void write_file_outcome(Writer& writer, const FileOutcome& outcome);
bool parse_file_outcome(std::string_view payload, FileOutcome& outcome);

struct FileMatch {
  std::uint64_t line = 0;
  std::string_view path;
  std::string_view text;  // the line, cut
};

void write_file_match(Writer& writer, const FileMatch& match);
bool parse_file_match(std::string_view payload, FileMatch& match);

enum class FileEvent : std::uint8_t {
  kCreated = 1,
  kWritten = 2,
  kRemoved = 3,
  kRenamed = 4,  // from `path` to `other`
  kLost = 5,     // the kernel dropped some: look for yourself
};

struct FileChange {
  FileEvent event = FileEvent::kCreated;
  std::uint8_t is_directory = 0;
  std::string_view path;
  std::string_view other;
};

void write_file_change(Writer& writer, const FileChange& change);
bool parse_file_change(std::string_view payload, FileChange& change);

}  // namespace carrel::protocol
