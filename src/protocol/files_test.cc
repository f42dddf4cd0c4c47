#include "protocol/files.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

namespace carrel::protocol {
namespace {

template <typename Message>
std::string encode(void (*write)(Writer&, const Message&), const Message& message) {
  constexpr std::size_t kRoom = 4U << 20;
  const auto room = std::make_unique_for_overwrite<unsigned char[]>(kRoom);
  Writer writer({room.get(), kRoom});
  write(writer, message);
  EXPECT_TRUE(writer.ok());
  return {writer.written().begin(), writer.written().end()};
}

std::string encode(const FileRequest& request) {
  return encode<FileRequest>(write_file_request, request);
}
std::string encode(const FileEntry& entry) { return encode<FileEntry>(write_file_entry, entry); }
std::string encode(const FileOutcome& outcome) {
  return encode<FileOutcome>(write_file_outcome, outcome);
}
std::string encode(const FileChange& change) {
  return encode<FileChange>(write_file_change, change);
}

bool accepted(const FileRequest& request) {
  FileRequest parsed;
  return parse_file_request(encode(request), parsed);
}
bool accepted(const FileEntry& entry) {
  FileEntry parsed;
  return parse_file_entry(encode(entry), parsed);
}

FileRequest read_request() {
  FileRequest request;
  request.operation = FileOperation::kRead;
  request.path = "a b/\xff";
  request.from = 3;
  request.count = 7;
  return request;
}

TEST(FileRequest, SurvivesTheWire) {
  FileRequest request = read_request();
  request.flags = kFileLines;
  request.excluded = {2, std::string_view("a\0b\0", 4)};
  FileRequest parsed;
  const std::string payload = encode(request);
  ASSERT_TRUE(parse_file_request(payload, parsed));
  EXPECT_EQ(parsed.operation, FileOperation::kRead);
  EXPECT_EQ(parsed.path, request.path);
  EXPECT_EQ(parsed.from, 3U);
  EXPECT_EQ(parsed.count, 7U);
  EXPECT_EQ(parsed.mode, kDefaultMode);
  EXPECT_EQ(parsed.excluded.count, 2U);
}

TEST(FileRequest, EveryShorterOrLongerPayloadIsRefused) {
  const std::string payload = encode(read_request());
  FileRequest parsed;
  for (std::size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(parse_file_request(payload.substr(0, size), parsed)) << size;
  }
  EXPECT_FALSE(parse_file_request(payload + "x", parsed));
}

TEST(FileRequest, WhatMakesNoSenseIsRefused) {
  EXPECT_TRUE(accepted(read_request()));
  const auto without = [](const std::function<void(FileRequest&)>& change) {
    FileRequest request = read_request();
    change(request);
    return accepted(request);
  };
  EXPECT_FALSE(without([](FileRequest& r) { r.operation = static_cast<FileOperation>(0); }));
  EXPECT_FALSE(without([](FileRequest& r) { r.operation = static_cast<FileOperation>(16); }));
  EXPECT_FALSE(without([](FileRequest& r) { r.flags = 64; }));
  EXPECT_FALSE(without([](FileRequest& r) { r.mode = 010000; }));
  EXPECT_FALSE(without([](FileRequest& r) { r.path = ""; }));
  EXPECT_FALSE(without([](FileRequest& r) { r.path = std::string_view("a\0b", 3); }));
  EXPECT_FALSE(without([](FileRequest& r) { r.other = "b"; }));
  EXPECT_FALSE(without([](FileRequest& r) { r.text = "b"; }));
  EXPECT_FALSE(without([](FileRequest& r) { r.operation = FileOperation::kMove; }));
  EXPECT_FALSE(without([](FileRequest& r) { r.operation = FileOperation::kSearch; }));
  EXPECT_FALSE(without([](FileRequest& r) { r.operation = FileOperation::kReplace; }));
}

TEST(FileRequest, ReplacementsMayBeLargeAndNoOtherTexts) {
  const std::string large(kMaxReplacement, 'x');
  FileRequest request = read_request();
  request.operation = FileOperation::kReplace;
  request.pattern = large;
  request.text = large;
  EXPECT_TRUE(accepted(request));
  EXPECT_LE(encode(request).size(), kMaxFileRequest);
  const std::string larger = large + "x";
  request.text = larger;
  EXPECT_FALSE(accepted(request));
  request = read_request();
  request.operation = FileOperation::kSearch;
  request.pattern = large;
  EXPECT_FALSE(accepted(request));
}

TEST(FileEntry, APathThatLeavesItsTreeIsRefused) {
  for (const char* path : {"..", "../x", "a/..", "a/../b", "/a", "a//b", "a/", "/", ".", "a/./b"}) {
    FileEntry entry;
    entry.path = path;
    EXPECT_FALSE(accepted(entry)) << path;
  }
  for (const char* path :
       {"", "a", "a..b", "..a", "a/b", "...", "a b;$(id)", "C:\\x", "\xc0\xae"}) {
    FileEntry entry;
    entry.path = path;
    EXPECT_TRUE(accepted(entry)) << path;
  }
}

TEST(FileEntry, DepthAndLengthAreBounded) {
  std::string path = "a";
  for (std::size_t i = 1; i < kDeepestTree; ++i) {
    path += "/a";
  }
  EXPECT_TRUE(is_tree_path(path));
  EXPECT_FALSE(is_tree_path(path + "/a"));
  EXPECT_FALSE(is_tree_path(std::string(kMaxPath + 1, 'a')));
}

TEST(FileEntry, LinksHaveTargetsAndNothingElseHas) {
  FileEntry entry;
  entry.path = "a";
  entry.target = "/etc/passwd";
  EXPECT_FALSE(accepted(entry));
  entry.kind = FileKind::kLink;
  EXPECT_TRUE(accepted(entry));
  entry.target = "";
  EXPECT_FALSE(accepted(entry));
  entry.kind = FileKind::kHardLink;
  entry.target = "/etc/passwd";
  EXPECT_FALSE(accepted(entry));
  entry.target = "b/c";
  EXPECT_TRUE(accepted(entry));
  entry.mode = 010000;
  EXPECT_FALSE(accepted(entry));
}

TEST(FileEntry, ASizeBeyondAnyFileIsRefused) {
  FileEntry entry;
  entry.size = 1ULL << 63;
  EXPECT_FALSE(accepted(entry));
}

TEST(FileOutcome, SurvivesTheWire) {
  FileOutcome outcome;
  outcome.problem = FileProblem::kMatches;
  outcome.value = 3;
  outcome.left_out = 9;
  outcome.path = "x";
  outcome.detail = "1, 2, 3";
  FileOutcome parsed;
  const std::string payload = encode(outcome);
  ASSERT_TRUE(parse_file_outcome(payload, parsed));
  EXPECT_EQ(parsed.problem, FileProblem::kMatches);
  EXPECT_EQ(parsed.value, 3U);
  EXPECT_EQ(parsed.left_out, 9U);
  EXPECT_EQ(parsed.detail, "1, 2, 3");
  outcome.error_number = 4096;
  EXPECT_FALSE(parse_file_outcome(encode(outcome), parsed));
}

TEST(FileChange, OnlyARenameHasTwoPaths) {
  FileChange parsed;
  EXPECT_TRUE(parse_file_change(encode(FileChange{FileEvent::kRenamed, 0, "a", "b"}), parsed));
  EXPECT_FALSE(parse_file_change(encode(FileChange{FileEvent::kCreated, 0, "a", "b"}), parsed));
  EXPECT_FALSE(parse_file_change(encode(FileChange{FileEvent::kCreated, 0, "../a", ""}), parsed));
  EXPECT_FALSE(parse_file_change(encode(FileChange{FileEvent::kCreated, 2, "a", ""}), parsed));
}

TEST(Climbs, OnlyAComponentOfTwoDotsDoes) {
  for (const char* path : {"..", "/..", "a/..", "../a", "/a/../b", "a/../../etc/passwd"}) {
    EXPECT_TRUE(climbs(path)) << path;
  }
  for (const char* path : {"", "/", "a..b", "..a", "a..", ".../x", "/a/b"}) {
    EXPECT_FALSE(climbs(path)) << path;
  }
}

}  // namespace
}  // namespace carrel::protocol
