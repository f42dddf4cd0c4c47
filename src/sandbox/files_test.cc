#include "sandbox/files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "sandbox/fake_guest_test_support.h"

namespace carrel::sandbox {
namespace {

using protocol::FileEntry;
using protocol::FileKind;
using protocol::FileOutcome;
using protocol::FileProblem;
using protocol::FrameType;

std::string entry_payload(const FileEntry& entry) {
  return payload([&](protocol::Writer& writer) { protocol::write_file_entry(writer, entry); });
}

std::string outcome_payload(FileProblem problem = FileProblem::kNone, std::uint32_t reason = 0) {
  FileOutcome outcome;
  outcome.problem = problem;
  outcome.error_number = reason;
  return payload([&](protocol::Writer& writer) { protocol::write_file_outcome(writer, outcome); });
}

std::string number_payload(std::uint64_t value) {
  return payload([&](protocol::Writer& writer) { writer.u64(value); });
}

// A worker that answers the first request with these frames.
class FakeWorker {
 public:
  explicit FakeWorker(std::string answer)
      : pair_(StreamAndGuest::make()), thread_([this, answer = std::move(answer)] {
          pair_.guest.read();
          pair_.guest.send(FrameType::kFilesReady, {}, 0);
          pair_.guest.read();
          pair_.guest.write(answer);
          while (pair_.guest.read().has_value()) {
          }
          pair_.guest.close();
        }) {}
  ~FakeWorker() { thread_.join(); }

  Result<Files> open() {
    return Files::open(std::move(pair_.stream), std::chrono::milliseconds(10'000));
  }

 private:
  StreamAndGuest pair_;
  std::thread thread_;
};

class Kept : public TreeSink {
 public:
  Status entry(const FileEntry& entry) override {
    text += "[" + std::string(entry.path) + "]";
    return {};
  }
  Status contents(std::string_view data) override {
    text += data;
    return {};
  }
  Status hole(std::uint64_t size) override {
    text += "<" + std::to_string(size) + ">";
    return {};
  }
  std::string text;
};

Result<std::string> pack(const std::string& answer) {
  FakeWorker worker(answer);
  CARREL_ASSIGN(Files files, worker.open());
  files.set_patience(std::chrono::milliseconds(2000));
  Kept kept;
  CARREL_TRY(files.pack("x", kept));
  return kept.text;
}

std::string frame(FrameType type, const std::string& body) {
  return FakeGuest::frame(type, body, 0);
}

FileEntry file(std::string_view path, std::uint64_t size) {
  FileEntry entry;
  entry.path = path;
  entry.size = size;
  entry.mode = 0644;
  return entry;
}

TEST(Files, ATreeArrivesAsItWasTold) {
  auto text =
      pack(frame(FrameType::kFileEntry, entry_payload(file("a", 7))) +
           frame(FrameType::kFileData, "abc") + frame(FrameType::kFileHole, number_payload(4)) +
           frame(FrameType::kFileDone, outcome_payload()));
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_EQ(text.value(), "[a]abc<4>");
}

// R148: what a worker says is hostile.
TEST(Files, ATreeThatBreaksItsOwnWordIsRefused) {
  const std::string small = frame(FrameType::kFileEntry, entry_payload(file("a", 2)));
  const std::string done = frame(FrameType::kFileDone, outcome_payload());
  const std::string evil[] = {
      small + frame(FrameType::kFileData, "abc") + done,
      small + frame(FrameType::kFileHole, number_payload(~0ULL)) + done,
      frame(FrameType::kFileData, "abc") + done,
      frame(FrameType::kFileEntry, entry_payload(file("../a", 2))) + done,
      frame(FrameType::kFileEntry, entry_payload(file("/a", 2))) + done,
      frame(FrameType::kFileEntry, entry_payload(file("a", 1ULL << 63))) + done,
      frame(FrameType::kFileMatch, "x") + done,
      frame(FrameType::kFileDone, "x"),
      std::string(12, '\xff'),
      small + frame(FrameType::kFileHole, "x") + done,
  };
  for (const std::string& answer : evil) {
    auto text = pack(answer);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, Code::kGone) << text.error().to_string();
  }
  FileEntry device = file("a", 0);
  device.kind = FileKind::kOther;
  EXPECT_FALSE(pack(frame(FrameType::kFileEntry, entry_payload(device)) + done).ok());
}

// A listing is kept by whoever asked for it: it has an end, whatever the worker says.
TEST(Files, AListingWithoutEndIsRefused) {
  const std::string name(4000, 'n');
  const std::string one = frame(FrameType::kFileEntry, entry_payload(file(name, 1)));
  std::array<int, 2> fds{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  std::thread endless([&one, guest = FakeGuest(UniqueFd(fds[1]))]() mutable {
    guest.send(FrameType::kFilesReady, {}, 0);
    while (guest.write(one)) {
    }
  });
  std::uint64_t kept = 0;
  {
    auto files = Files::open(GuestStream(UniqueFd(fds[0])), std::chrono::milliseconds(10'000));
    ASSERT_TRUE(files.ok());
    auto listed = files.value().list("x", {}, [&kept](const FileInfo&) -> Status {
      ++kept;
      return {};
    });
    ASSERT_FALSE(listed.ok());
    EXPECT_EQ(listed.error().code, Code::kResource);
  }
  endless.join();
  EXPECT_LT(kept * name.size(), 256U << 20);
}

TEST(Files, AWorkerThatSaysNothingIsGivenUp) {
  FakeWorker worker("");
  auto files = worker.open();
  ASSERT_TRUE(files.ok());
  files.value().set_patience(std::chrono::milliseconds(50));
  auto info = files.value().stat("x");
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().code, Code::kTimeout);
}

// R138
TEST(Files, WhatIsMissingIsNotFound) {
  FakeWorker worker(frame(FrameType::kFileDone, outcome_payload(FileProblem::kSystem, ENOENT)));
  auto files = worker.open();
  ASSERT_TRUE(files.ok());
  auto info = files.value().stat("/none");
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().code, Code::kNotFound);
  EXPECT_EQ(info.error().to_string(), "'/none' was not found: it does not exist in the sandbox");
}

// R142
TEST(Files, APathThatClimbsIsRefusedBeforeAnythingIsAsked) {
  for (const char* path : {"a/../../etc/passwd", "..", "/../etc/passwd", "/workspace/./../x"}) {
    Status status = check_path(path);
    ASSERT_FALSE(status.ok()) << path;
    EXPECT_NE(status.error().message.find("potentially unsafe"), std::string::npos);
  }
  for (const char* path : {"a..b", "...", "/etc/hostname", "..%2f..%2fetc", "..\\x", "\xc0\xae"}) {
    EXPECT_TRUE(check_path(path).ok()) << path;
  }
  EXPECT_FALSE(check_path("").ok());
  EXPECT_FALSE(check_path(std::string("a\0b", 3)).ok());
  EXPECT_FALSE(check_path(std::string(5000, 'a')).ok());
}

// A worker that fails early and reads on does not make the host send everything for nothing, and
// one that only talks does not make it wait for ever.
TEST(Files, AnUploadEndsWithTheErrorOfTheWorker) {
  FakeWorker worker(frame(FrameType::kFileDone, outcome_payload(FileProblem::kSystem, ENOSPC)));
  auto files = worker.open();
  ASSERT_TRUE(files.ok());
  std::size_t left = 64U << 20;
  auto written = files.value().write("x", {}, [&left](char* place, std::size_t size) {
    std::fill_n(place, size, 'x');
    left -= std::min(left, size);
    return Result<std::size_t>(left == 0 ? 0 : size);
  });
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kResource) << written.error().to_string();
}

}  // namespace
}  // namespace carrel::sandbox
