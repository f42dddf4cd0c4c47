// The messages of a file session, and what a worker does with names and text. Whatever a parser
// accepts is in range and survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "guest/file_text.h"
#include "protocol/files.h"

namespace {

using namespace carrel::protocol;
namespace guest = carrel::guest;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

template <typename Message>
void survives(std::string_view payload, bool (*parse)(std::string_view, Message&),
              void (*write)(Writer&, const Message&), void (*check)(const Message&)) {
  Message message;
  if (!parse(payload, message)) {
    return;
  }
  check(message);
  const auto room = std::make_unique<unsigned char[]>(payload.size());
  Writer writer({room.get(), payload.size()});
  write(writer, message);
  require(writer.ok() && writer.size() == payload.size());
  require(std::string_view(reinterpret_cast<const char*>(room.get()), writer.size()) == payload);
}

void check_below(std::string_view path) {
  require(path.size() <= kMaxPath && path.find('\0') == std::string_view::npos);
  require(!climbs(path) && (path.empty() || path.front() != '/'));
  require(path.find("//") == std::string_view::npos);
}

void check_request(const FileRequest& request) {
  require(!request.path.empty() && request.path.size() <= kMaxPath);
  require(request.path.find('\0') == std::string_view::npos);
  require(request.mode == kDefaultMode || request.mode <= 07777);
}

void check_entry(const FileEntry& entry) {
  check_below(entry.path);
  require(entry.size <= static_cast<std::uint64_t>(INT64_MAX));
  if (entry.kind == FileKind::kHardLink) {
    check_below(entry.target);
  }
}

void check_outcome(const FileOutcome& outcome) {
  require(static_cast<std::uint8_t>(outcome.problem) <= kLastFileProblem);
}

void check_match(const FileMatch& match) {
  check_below(match.path);
  require(match.line >= 1 && match.text.size() <= kMaxLineShown);
}

void check_change(const FileChange& change) {
  check_below(change.path);
  check_below(change.other);
}

// The first part is a name or a text to look for, the rest what it is looked for in.
void look_at_text(std::string_view bytes) {
  const std::size_t cut = bytes.find('|');
  if (cut == std::string_view::npos) {
    return;
  }
  const std::string_view wanted = bytes.substr(0, cut);
  const std::string_view contents = bytes.substr(cut + 1);
  (void)guest::matches_pattern(contents, wanted);
  (void)guest::is_usual_clutter(contents, guest::NameOf::kFile);
  if (wanted.find_first_of("*?[\\") == std::string_view::npos) {
    require(guest::matches_pattern(contents, wanted) == (contents == wanted));
  }
  if (!wanted.empty()) {
    const guest::Occurrences found = guest::find_occurrences(contents, wanted);
    require((found.count > 0) == (contents.find(wanted) != std::string_view::npos));
    require(found.count == 0 || found.first == contents.find(wanted));
  }
  // Lines in pieces are lines in one piece.
  const std::uint64_t first = wanted.size() % 7 + 1;
  guest::LineRange whole(first, first + 2);
  guest::LineRange parts(first, first + 2);
  const std::string at_once(whole.take(contents));
  std::string in_pieces;
  for (std::size_t at = 0; at < contents.size(); at += 3) {
    in_pieces += parts.take(contents.substr(at, 3));
  }
  require(at_once == in_pieces && whole.lines() == parts.lines());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return -1;
  }
  const std::string_view payload(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'r':
      survives<FileRequest>(payload, parse_file_request, write_file_request, check_request);
      break;
    case 'e':
      survives<FileEntry>(payload, parse_file_entry, write_file_entry, check_entry);
      break;
    case 'o':
      survives<FileOutcome>(payload, parse_file_outcome, write_file_outcome, check_outcome);
      break;
    case 'm':
      survives<FileMatch>(payload, parse_file_match, write_file_match, check_match);
      break;
    case 'c':
      survives<FileChange>(payload, parse_file_change, write_file_change, check_change);
      break;
    default:
      look_at_text(payload);
      break;
  }
  return 0;
}
