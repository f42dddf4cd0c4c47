#include "protocol/files.h"

namespace carrel::protocol {

namespace {

Reader reader_of(std::string_view payload) {
  return Reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
}

constexpr std::uint32_t kModeBits = 07777;

// Calls `visit` with each component until it says no. Adjacent slashes give empty components.
template <typename Visit>
bool each_component(std::string_view path, Visit visit) {
  for (;;) {
    const std::size_t slash = path.find('/');
    if (!visit(path.substr(0, slash))) {
      return false;
    }
    if (slash == std::string_view::npos) {
      return true;
    }
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

bool is_tree_path(std::string_view path) {
  std::size_t depth = 0;
  return path.empty() ||
         (path.size() <= kMaxPath && each_component(path, [&depth](std::string_view part) {
            return !part.empty() && part != "." && part != ".." && ++depth <= kDeepestTree;
          }));
}

bool climbs(std::string_view path) {
  return !each_component(path, [](std::string_view part) { return part != ".."; });
}

void write_file_request(Writer& writer, const FileRequest& request) {
  writer.u8(static_cast<std::uint8_t>(request.operation));
  writer.u32(request.flags);
  writer.u32(request.mode);
  writer.u64(request.from);
  writer.u64(request.count);
  writer.u64(request.modified_ns);
  writer.bytes(request.path);
  writer.bytes(request.other);
  writer.bytes(request.pattern);
  writer.bytes(request.text);
  write_list(writer, request.excluded);
}

bool parse_file_request(std::string_view payload, FileRequest& request) {
  Reader reader = reader_of(payload);
  const std::uint8_t operation = reader.u8();
  request.operation = static_cast<FileOperation>(operation);
  request.flags = reader.u32();
  request.mode = reader.u32();
  request.from = reader.u64();
  request.count = reader.u64();
  request.modified_ns = reader.u64();
  request.path = reader.text(kMaxPath);
  request.other = reader.text(kMaxPath);
  const bool replaces = request.operation == FileOperation::kReplace;
  request.pattern = reader.bytes(replaces ? kMaxReplacement : kMaxPattern);
  request.text = reader.bytes(replaces ? kMaxReplacement : 0);
  request.excluded = read_list(reader);
  if (!reader.finished() || operation < 1 || operation > kLastFileOperation ||
      (request.flags & ~std::uint32_t{kFileAllFlags}) != 0 || request.path.empty() ||
      (request.mode != kDefaultMode && request.mode > kModeBits)) {
    return false;
  }
  const bool two =
      request.operation == FileOperation::kMove || request.operation == FileOperation::kCopy;
  const bool needs_pattern = replaces || request.operation == FileOperation::kSearch;
  return two == !request.other.empty() && (!needs_pattern || !request.pattern.empty());
}

void write_file_entry(Writer& writer, const FileEntry& entry) {
  writer.u8(static_cast<std::uint8_t>(entry.kind));
  writer.u32(entry.mode);
  writer.u64(entry.size);
  writer.u64(entry.modified_ns);
  writer.bytes(entry.path);
  writer.bytes(entry.target);
}

bool parse_file_entry(std::string_view payload, FileEntry& entry) {
  Reader reader = reader_of(payload);
  const std::uint8_t kind = reader.u8();
  entry.kind = static_cast<FileKind>(kind);
  entry.mode = reader.u32();
  entry.size = reader.u64();
  entry.modified_ns = reader.u64();
  entry.path = reader.text(kMaxPath);
  entry.target = reader.text(kMaxPath);
  if (!reader.finished() || kind < 1 || kind > 6 || entry.mode > kModeBits ||
      entry.size > static_cast<std::uint64_t>(INT64_MAX) || !is_tree_path(entry.path)) {
    return false;
  }
  switch (entry.kind) {
    case FileKind::kLink:
      return !entry.target.empty();
    case FileKind::kHardLink:
      return !entry.target.empty() && is_tree_path(entry.target);
    default:
      return entry.target.empty();
  }
}

void write_file_outcome(Writer& writer, const FileOutcome& outcome) {
  writer.u8(static_cast<std::uint8_t>(outcome.problem));
  writer.u32(outcome.error_number);
  writer.u64(outcome.value);
  writer.u64(outcome.entries);
  writer.u64(outcome.bytes);
  writer.u64(outcome.left_out);
  writer.bytes(outcome.path);
  writer.bytes(outcome.detail);
}

bool parse_file_outcome(std::string_view payload, FileOutcome& outcome) {
  Reader reader = reader_of(payload);
  const std::uint8_t problem = reader.u8();
  outcome.problem = static_cast<FileProblem>(problem);
  outcome.error_number = reader.u32();
  outcome.value = reader.u64();
  outcome.entries = reader.u64();
  outcome.bytes = reader.u64();
  outcome.left_out = reader.u64();
  outcome.path = reader.text(kMaxPath);
  outcome.detail = reader.text(kMaxReason);
  return reader.finished() && problem <= kLastFileProblem && outcome.error_number <= 4095;
}

void write_file_match(Writer& writer, const FileMatch& match) {
  writer.u64(match.line);
  writer.bytes(match.path);
  writer.bytes(match.text);
}

bool parse_file_match(std::string_view payload, FileMatch& match) {
  Reader reader = reader_of(payload);
  match.line = reader.u64();
  match.path = reader.text(kMaxPath);
  match.text = reader.bytes(kMaxLineShown);
  return reader.finished() && match.line >= 1 && is_tree_path(match.path);
}

void write_file_change(Writer& writer, const FileChange& change) {
  writer.u8(static_cast<std::uint8_t>(change.event));
  writer.u8(change.is_directory);
  writer.bytes(change.path);
  writer.bytes(change.other);
}

bool parse_file_change(std::string_view payload, FileChange& change) {
  Reader reader = reader_of(payload);
  const std::uint8_t event = reader.u8();
  change.event = static_cast<FileEvent>(event);
  change.is_directory = reader.u8();
  change.path = reader.text(kMaxPath);
  change.other = reader.text(kMaxPath);
  return reader.finished() && event >= 1 && event <= 5 && change.is_directory <= 1 &&
         is_tree_path(change.path) && is_tree_path(change.other) &&
         (change.event == FileEvent::kRenamed || change.other.empty());
}

}  // namespace carrel::protocol
