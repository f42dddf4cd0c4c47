#include "connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "support/host.h"
#include "support/place.h"

namespace carrel::test {

namespace {

using protocol::FrameType;

// Through a descriptor of its directory, because a socket's path is at most 107 bytes long.
UniqueFd connect_to(const std::string& directory) {
  UniqueFd folder(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/socket";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
      << directory << ": " << std::strerror(errno);
  return fd;
}

protocol::StringList list_of(const std::vector<std::string>& words, std::string& data) {
  for (const std::string& word : words) {
    data += word;
    data += '\0';
  }
  return {static_cast<std::uint32_t>(words.size()), data};
}

}  // namespace

Connection::Connection(As as, const Box& box)
    : stream_(connect_to(place().home(as) + "/run/box/" + box.id())) {
  Status greeted = stream_.greet(box.id(), 10'000);
  EXPECT_TRUE(greeted.ok()) << greeted.error().message;
}

std::uint32_t Connection::start(const Request& request) {
  std::uint32_t channel = next_channel_++;
  std::string words;
  protocol::Start start;
  start.kind = request.arguments.empty() ? protocol::StartKind::kShell : protocol::StartKind::kExec;
  start.flags = request.flags;
  start.timeout_ms = request.timeout_ms;
  start.session = request.session;
  start.text = request.text;
  start.arguments = list_of(request.arguments, words);
  std::vector<unsigned char> buffer(request.text.size() + words.size() + 256);
  protocol::Writer writer(buffer);
  protocol::write_start(writer, start);
  send(channel, FrameType::kStart, {reinterpret_cast<const char*>(buffer.data()), writer.size()});
  return channel;
}

void Connection::send(std::uint32_t channel, FrameType type, std::string_view payload) {
  Status sent = stream_.send(channel, type, payload);
  EXPECT_TRUE(sent.ok()) << sent.error().message;
}

std::uint32_t Connection::follow(std::uint64_t id, std::uint64_t stdout_offset,
                                 std::uint64_t stderr_offset) {
  std::uint32_t channel = next_channel_++;
  unsigned char buffer[24];
  protocol::Writer writer(buffer);
  writer.u64(id);
  writer.u64(stdout_offset);
  writer.u64(stderr_offset);
  send(channel, FrameType::kFollow, {reinterpret_cast<const char*>(buffer), writer.size()});
  return channel;
}

std::map<std::uint64_t, std::string> Connection::list() {
  listed_.clear();
  list_ended_ = false;
  send(next_channel_++, FrameType::kList);
  while (!list_ended_) {
    Result<sandbox::GuestFrame> frame = stream_.wait(10'000);
    if (!frame.ok()) {
      ADD_FAILURE() << frame.error().message;
      break;
    }
    take(frame.value());
  }
  return listed_;
}

Heard& Connection::wait(std::uint32_t channel, std::chrono::milliseconds patience) {
  Heard& heard = heard_[channel];
  auto started = std::chrono::steady_clock::now();
  while (!heard.ended && !heard.refused) {
    heard.took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - started);
    auto left = std::max<std::chrono::milliseconds::rep>((patience - heard.took).count(), 0);
    Result<sandbox::GuestFrame> frame = stream_.wait(static_cast<int>(left));
    if (!frame.ok()) {
      ADD_FAILURE() << "after " << heard.took.count() << " ms: " << frame.error().message;
      break;
    }
    take(frame.value());
  }
  return heard;
}

bool Connection::wait_for_output(std::uint32_t channel, const std::string& text) {
  while (heard_[channel].out.find(text) == std::string::npos) {
    Result<sandbox::GuestFrame> frame = stream_.wait(10'000);
    if (!frame.ok()) {
      return false;
    }
    take(frame.value());
  }
  return true;
}

void Connection::take(const sandbox::GuestFrame& frame) {
  protocol::Reader reader(
      {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
  Heard& heard = heard_[frame.channel];
  switch (frame.type) {
    case FrameType::kOutput: {
      std::uint8_t stream = reader.u8();
      std::uint64_t offset = reader.u64();
      std::string& text = stream == 1 ? heard.out : heard.err;
      if (stream == 1 && text.empty()) {
        heard.out_start = offset;
      }
      text.append(frame.payload, 9);
      break;
    }
    case FrameType::kExit:
      EXPECT_TRUE(protocol::parse_exit(frame.payload, heard.end));
      heard.cwd = heard.end.cwd;
      heard.end.cwd = {};
      heard.ended = true;
      break;
    case FrameType::kRefused:
      reader.u32();
      reader.u32();
      heard.refusal = reader.text(512);
      heard.refused = true;
      break;
    case FrameType::kCommand: {
      protocol::CommandRow row;
      EXPECT_TRUE(protocol::parse_command_row(frame.payload, row));
      listed_[row.id] = row.title;
      break;
    }
    case FrameType::kListEnd:
      list_ended_ = true;
      break;
    default:
      break;
  }
}

long cpu_ms(pid_t pid) {
  std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat").value_or("");
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) {
    fields >> skipped;
  }
  long user = 0;
  long system = 0;
  fields >> user >> system;
  return (user + system) * 1000 / ::sysconf(_SC_CLK_TCK);
}

}  // namespace carrel::test
