#include "protocol/message.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::protocol {
namespace {

// `count` strings of `size` letters with their zero bytes.
std::string strings(std::size_t count, std::size_t size = 1) {
  std::string data;
  for (std::size_t i = 0; i < count; ++i) {
    data += std::string(size, 'x') + '\0';
  }
  return data;
}

template <typename Message>
std::string encoded(void (*write)(Writer&, const Message&), const Message& message) {
  constexpr std::size_t kRoom = 8U << 20;
  const auto room = std::make_unique_for_overwrite<unsigned char[]>(kRoom);
  Writer writer({room.get(), kRoom});
  write(writer, message);
  EXPECT_TRUE(writer.ok());
  return {writer.written().begin(), writer.written().end()};
}

std::string encoded(const Start& start) { return encoded<Start>(write_start, start); }
std::string encoded(const Exit& exit) { return encoded<Exit>(write_exit, exit); }
std::string encoded(const CommandRow& row) { return encoded<CommandRow>(write_command_row, row); }

bool accepted(const Start& start) {
  Start parsed;
  return parse_start(encoded(start), parsed);
}
bool accepted(const Exit& exit) {
  Exit parsed;
  return parse_exit(encoded(exit), parsed);
}
bool accepted(const CommandRow& row) {
  CommandRow parsed;
  return parse_command_row(encoded(row), parsed);
}

const std::string kTwoArguments("ls\0-l\0", 6);
const std::string kTwoVariables("A=1\0B=\0", 7);

Start exec_start() {
  Start start;
  start.kind = StartKind::kExec;
  start.flags = kStartTerminal | kStartStdin;
  start.timeout_ms = 60'000;
  start.rows = 50;
  start.columns = 132;
  start.caller = 3;
  start.workdir = "/workspace";
  start.arguments = {2, kTwoArguments};
  start.environment = {2, kTwoVariables};
  return start;
}

Start shell_start() {
  Start start;
  start.kind = StartKind::kShell;
  start.flags = kStartMerged;
  start.timeout_ms = kMaxTimeoutMs;
  start.session = "main";
  start.text = "echo hello\n";
  return start;
}

Exit some_exit() {
  Exit exit;
  exit.kind = EndKind::kSignaled;
  exit.flags = kExitOutOfMemory | kExitShellRestarted;
  exit.code = 255;
  exit.signal = 64;
  exit.error_number = 4095;
  exit.duration_us = ~0ULL;
  exit.stdout_bytes = 1ULL << 40;
  exit.stderr_bytes = 7;
  exit.cwd = "/workspace/a b";
  return exit;
}

CommandRow some_row() {
  CommandRow row;
  row.id = ~0ULL;
  row.running = 1;
  row.kind = StartKind::kShell;
  row.started_ms = 1'700'000'000'000;
  row.stdout_start = 5;
  row.stdout_end = 5;
  row.stderr_start = 0;
  row.stderr_end = ~0ULL;
  row.title = "make test";
  return row;
}

// A payload that lacks its end, or has something after it, is refused.
template <typename Message>
void expect_exact_size(const std::string& payload, bool (*parse)(std::string_view, Message&)) {
  Message parsed;
  for (std::size_t size = 0; size < payload.size(); ++size) {
    const std::string cut(payload, 0, size);
    EXPECT_FALSE(parse(cut, parsed)) << "cut to " << size;
  }
  EXPECT_TRUE(parse(payload, parsed));
  EXPECT_FALSE(parse(payload + '\0', parsed));
  EXPECT_FALSE(parse(payload + "x", parsed));
}

TEST(Start, ExecIsReadBackAsWritten) {
  const std::string payload = encoded(exec_start());
  Start parsed;
  ASSERT_TRUE(parse_start(payload, parsed));
  EXPECT_EQ(parsed.kind, StartKind::kExec);
  EXPECT_EQ(parsed.flags, kStartTerminal | kStartStdin);
  EXPECT_EQ(parsed.timeout_ms, 60'000U);
  EXPECT_EQ(parsed.rows, 50);
  EXPECT_EQ(parsed.columns, 132);
  EXPECT_EQ(parsed.caller, 3);
  EXPECT_EQ(parsed.workdir, "/workspace");
  EXPECT_EQ(parsed.arguments.count, 2U);
  EXPECT_EQ(parsed.arguments.data, kTwoArguments);
  EXPECT_EQ(parsed.environment.count, 2U);
  EXPECT_EQ(parsed.environment.data, kTwoVariables);
  EXPECT_EQ(encoded(parsed), payload);
}

TEST(Start, ShellIsReadBackAsWritten) {
  const std::string payload = encoded(shell_start());
  Start parsed;
  ASSERT_TRUE(parse_start(payload, parsed));
  EXPECT_EQ(parsed.kind, StartKind::kShell);
  EXPECT_EQ(parsed.session, "main");
  EXPECT_EQ(parsed.text, "echo hello\n");
  EXPECT_EQ(encoded(parsed), payload);
}

TEST(Start, IsExactlyAsLongAsItsFields) {
  expect_exact_size<Start>(encoded(exec_start()), parse_start);
  expect_exact_size<Start>(encoded(shell_start()), parse_start);
}

TEST(Start, UnknownKindIsRefused) {
  for (unsigned kind = 0; kind < 256; ++kind) {
    Start start = exec_start();
    start.kind = static_cast<StartKind>(kind);
    EXPECT_EQ(accepted(start), kind == 1) << kind;
  }
}

TEST(Start, UnknownFlagsAreRefused) {
  for (unsigned bit = 0; bit < 32; ++bit) {
    Start start = exec_start();
    start.flags = 1U << bit;
    EXPECT_EQ(accepted(start), bit < 3) << bit;
  }
}

TEST(Start, TimeoutIsBetweenOneMillisecondAndThirtyDays) {
  for (const auto& [timeout, good] :
       std::vector<std::pair<std::uint64_t, bool>>{{0, false},
                                                   {1, true},
                                                   {kMaxTimeoutMs, true},
                                                   {kMaxTimeoutMs + 1, false},
                                                   {~0ULL, false}}) {
    Start start = exec_start();
    start.timeout_ms = timeout;
    EXPECT_EQ(accepted(start), good) << timeout;
  }
}

TEST(Start, DirectoryIsAbsoluteAndAtMostAPathLong) {
  const std::string longest = "/" + std::string(kMaxPath - 1, 'd');
  const std::string over = longest + "d";
  const std::string with_nul("/a\0b", 4);
  for (const auto& [path, good] :
       std::vector<std::pair<std::string_view, bool>>{{"", true},
                                                      {"/", true},
                                                      {longest, true},
                                                      {over, false},
                                                      {"work", false},
                                                      {"./work", false},
                                                      {with_nul, false}}) {
    Start start = exec_start();
    start.workdir = path;
    EXPECT_EQ(accepted(start), good) << path.size();
  }
}

TEST(Start, SessionNameHasALimit) {
  const std::string name(kMaxName + 1, 's');
  Start start = shell_start();
  start.session = std::string_view(name).substr(0, kMaxName);
  EXPECT_TRUE(accepted(start));
  start.session = name;
  EXPECT_FALSE(accepted(start));
  start.session = std::string_view("a\0b", 3);
  EXPECT_FALSE(accepted(start));
}

TEST(Start, TextHasALimitAndNoNul) {
  const std::string text(kMaxText + 1, 't');
  Start start = shell_start();
  start.text = std::string_view(text).substr(0, kMaxText);
  EXPECT_TRUE(accepted(start));
  start.text = text;
  EXPECT_FALSE(accepted(start));
  start.text = std::string_view("echo\0rm", 7);
  EXPECT_FALSE(accepted(start));
}

TEST(Start, ExecNeedsAnArgumentAndHasNoText) {
  Start start = exec_start();
  start.arguments = {};
  EXPECT_FALSE(accepted(start));
  start = exec_start();
  start.text = "echo";
  EXPECT_FALSE(accepted(start));
  start = exec_start();
  start.session = "main";
  EXPECT_FALSE(accepted(start));
}

TEST(Start, ShellHasNothingOfAProcess) {
  const std::vector<std::function<void(Start&)>> changes = {
      [](Start& start) { start.arguments = {2, kTwoArguments}; },
      [](Start& start) { start.environment = {2, kTwoVariables}; },
      [](Start& start) { start.workdir = "/workspace"; },
      [](Start& start) { start.flags |= kStartTerminal; },
  };
  ASSERT_TRUE(accepted(shell_start()));
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Start start = shell_start();
    changes[i](start);
    EXPECT_FALSE(accepted(start)) << i;
  }
}

TEST(StringList, CountIsTheNumberOfStrings) {
  for (const auto& [count, good] :
       std::vector<std::pair<std::uint32_t, bool>>{{1, false}, {2, true}, {3, false}}) {
    Start start = exec_start();
    start.arguments.count = count;
    EXPECT_EQ(accepted(start), good) << count;
    start = exec_start();
    start.environment.count = count;
    EXPECT_EQ(accepted(start), good) << count;
  }
}

TEST(StringList, LastStringEndsWithZero) {
  Start start = exec_start();
  start.arguments = {1, "ls"};
  EXPECT_FALSE(accepted(start));
  start.arguments = {1, std::string_view("ls\0-l", 5)};
  EXPECT_FALSE(accepted(start));
}

TEST(StringList, EmptyStringsAreStrings) {
  Start start = exec_start();
  start.arguments = {3, std::string_view("\0\0\0", 3)};
  EXPECT_TRUE(accepted(start));
}

TEST(StringList, NumberOfStringsHasALimit) {
  const std::string data = strings(kMaxArguments + 1);
  Start start = exec_start();
  start.arguments = {kMaxArguments, std::string_view(data).substr(2)};
  EXPECT_TRUE(accepted(start));
  start.arguments = {kMaxArguments + 1, data};
  EXPECT_FALSE(accepted(start));
}

TEST(StringList, OneStringIsAtMostWhatTheKernelTakes) {
  const std::string most = strings(1, kMaxArgument - 1);
  const std::string over = strings(1, kMaxArgument);
  Start start = exec_start();
  start.arguments = {1, most};
  EXPECT_TRUE(accepted(start));
  start.arguments = {1, over};
  EXPECT_FALSE(accepted(start));
}

TEST(StringList, AllStringsTogetherHaveALimit) {
  static_assert(kMaxText % (64U << 10) == 0);
  const std::string most = strings(kMaxText / (64U << 10), (64U << 10) - 1);
  const std::string over = most + '\0';
  ASSERT_EQ(most.size(), kMaxText);
  Start start = exec_start();
  start.arguments = {kMaxText / (64U << 10), most};
  EXPECT_TRUE(accepted(start));
  start.arguments = {kMaxText / (64U << 10) + 1, over};
  EXPECT_FALSE(accepted(start));
}

TEST(Exit, IsReadBackAsWritten) {
  const std::string payload = encoded(some_exit());
  Exit parsed;
  ASSERT_TRUE(parse_exit(payload, parsed));
  EXPECT_EQ(parsed.kind, EndKind::kSignaled);
  EXPECT_EQ(parsed.flags, kExitOutOfMemory | kExitShellRestarted);
  EXPECT_EQ(parsed.code, 255U);
  EXPECT_EQ(parsed.signal, 64U);
  EXPECT_EQ(parsed.error_number, 4095U);
  EXPECT_EQ(parsed.duration_us, ~0ULL);
  EXPECT_EQ(parsed.stdout_bytes, 1ULL << 40);
  EXPECT_EQ(parsed.stderr_bytes, 7U);
  EXPECT_EQ(parsed.cwd, "/workspace/a b");
  EXPECT_EQ(encoded(parsed), payload);
}

TEST(Exit, IsExactlyAsLongAsItsFields) {
  expect_exact_size<Exit>(encoded(some_exit()), parse_exit);
}

TEST(Exit, UnknownKindIsRefused) {
  for (unsigned kind = 0; kind < 256; ++kind) {
    Exit exit = some_exit();
    exit.kind = static_cast<EndKind>(kind);
    EXPECT_EQ(accepted(exit), kind >= 1 && kind <= 5) << kind;
  }
}

TEST(Exit, UnknownFlagsAreRefused) {
  for (unsigned bit = 0; bit < 8; ++bit) {
    Exit exit = some_exit();
    exit.flags = static_cast<std::uint8_t>(1U << bit);
    EXPECT_EQ(accepted(exit), bit < 6) << bit;
  }
}

TEST(Exit, NumbersOutOfRangeAreRefused) {
  const std::vector<std::function<void(Exit&)>> changes = {
      [](Exit& exit) { exit.code = 256; },
      [](Exit& exit) { exit.code = ~0U; },
      [](Exit& exit) { exit.signal = 65; },
      [](Exit& exit) { exit.signal = ~0U; },
      [](Exit& exit) { exit.error_number = 4096; },
      [](Exit& exit) { exit.error_number = ~0U; },
      [](Exit& exit) { exit.cwd = std::string_view("/a\0b", 4); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Exit exit = some_exit();
    changes[i](exit);
    EXPECT_FALSE(accepted(exit)) << i;
  }
}

TEST(Exit, DirectoryHasALimit) {
  const std::string path(kMaxPath + 1, '/');
  Exit exit = some_exit();
  exit.cwd = std::string_view(path).substr(0, kMaxPath);
  EXPECT_TRUE(accepted(exit));
  exit.cwd = path;
  EXPECT_FALSE(accepted(exit));
}

TEST(CommandRow, IsReadBackAsWritten) {
  const std::string payload = encoded(some_row());
  CommandRow parsed;
  ASSERT_TRUE(parse_command_row(payload, parsed));
  EXPECT_EQ(parsed.id, ~0ULL);
  EXPECT_EQ(parsed.running, 1);
  EXPECT_EQ(parsed.kind, StartKind::kShell);
  EXPECT_EQ(parsed.started_ms, 1'700'000'000'000U);
  EXPECT_EQ(parsed.stdout_start, 5U);
  EXPECT_EQ(parsed.stdout_end, 5U);
  EXPECT_EQ(parsed.stderr_start, 0U);
  EXPECT_EQ(parsed.stderr_end, ~0ULL);
  EXPECT_EQ(parsed.title, "make test");
  EXPECT_EQ(encoded(parsed), payload);
}

TEST(CommandRow, IsExactlyAsLongAsItsFields) {
  expect_exact_size<CommandRow>(encoded(some_row()), parse_command_row);
}

TEST(CommandRow, NonsenseIsRefused) {
  const std::string title(kMaxReason + 1, 't');
  const std::vector<std::function<void(CommandRow&)>> changes = {
      [](CommandRow& row) { row.running = 2; },
      [](CommandRow& row) { row.kind = static_cast<StartKind>(0); },
      [](CommandRow& row) { row.kind = static_cast<StartKind>(3); },
      [](CommandRow& row) { row.stdout_start = 6; },
      [](CommandRow& row) { row.stderr_start = 1, row.stderr_end = 0; },
      [&](CommandRow& row) { row.title = title; },
      [](CommandRow& row) { row.title = std::string_view("a\0b", 3); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CommandRow row = some_row();
    changes[i](row);
    EXPECT_FALSE(accepted(row)) << i;
  }
  CommandRow row = some_row();
  row.title = std::string_view(title).substr(0, kMaxReason);
  EXPECT_TRUE(accepted(row));
}

TEST(Start, AFileWorkerTakesNothingButATimeout) {
  Start start;
  start.kind = StartKind::kFiles;
  start.timeout_ms = 1000;
  EXPECT_TRUE(accepted(start));
  start.workdir = "/tmp";
  EXPECT_FALSE(accepted(start));
  start.workdir = "";
  start.text = "x";
  EXPECT_FALSE(accepted(start));
  start.text = "";
  start.session = "x";
  EXPECT_FALSE(accepted(start));
  start.session = "";
  start.flags = kStartStdin;
  EXPECT_FALSE(accepted(start));
  start.flags = 0;
  start.arguments = {2, kTwoArguments};
  EXPECT_FALSE(accepted(start));
  start.arguments = {};
  start.environment = {2, kTwoVariables};
  EXPECT_FALSE(accepted(start));
}

}  // namespace
}  // namespace carrel::protocol
