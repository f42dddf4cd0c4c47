#include "protocol/service.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace carrel::protocol {
namespace {

std::string start_of(const Start& start) {
  std::array<unsigned char, 4096> buffer{};
  Writer writer(buffer);
  write_start(writer, start);
  return {writer.written().begin(), writer.written().end()};
}

Start exec() {
  Start start;
  start.timeout_ms = 1000;
  start.arguments = {1, std::string_view("x\0", 2)};
  return start;
}

std::string encode(const Service& service) {
  std::array<unsigned char, 16384> buffer{};
  Writer writer(buffer);
  write_service(writer, service);
  EXPECT_TRUE(writer.ok());
  return {writer.written().begin(), writer.written().end()};
}

bool accepted_list(const Service& service) {
  Service parsed;
  return parse_service(encode(service), parsed);
}

TEST(ServiceMessage, ArrivesAsItWasSent) {
  const std::string program = start_of(exec());
  Service parsed;
  const std::string payload = encode({"web", 80, program, {}});
  ASSERT_TRUE(parse_service(payload, parsed));
  EXPECT_EQ(parsed.name, "web");
  EXPECT_EQ(parsed.port, 80);
  EXPECT_EQ(parsed.program, program);
  for (std::size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(parse_service(std::string_view(payload).substr(0, size), parsed)) << size;
  }
  EXPECT_FALSE(parse_service(payload + "x", parsed));
}

TEST(ServiceMessage, IsAProgramWithoutATerminalAndReadyInOneWay) {
  const std::string program = start_of(exec());
  EXPECT_TRUE(accepted_list({"a", 0, program, program}));
  EXPECT_FALSE(accepted_list({"a", 80, program, program}));
  EXPECT_FALSE(accepted_list({"", 0, program, {}}));
  EXPECT_FALSE(accepted_list({"a", 0, {}, {}}));
  Start shell;
  shell.kind = StartKind::kShell;
  shell.timeout_ms = 1000;
  shell.text = "x";
  EXPECT_FALSE(accepted_list({"a", 0, start_of(shell), {}}));
  Start terminal = exec();
  terminal.flags = kStartTerminal;
  EXPECT_FALSE(accepted_list({"a", 0, start_of(terminal), {}}));
}

TEST(ServiceMessage, RowThatMakesNoSenseIsRefused) {
  const auto accepted_row = [](const ServiceRow& row) {
    std::array<unsigned char, 512> buffer{};
    Writer writer(buffer);
    write_service_row(writer, row);
    ServiceRow parsed;
    return parse_service_row({reinterpret_cast<const char*>(buffer.data()), writer.size()}, parsed);
  };
  ServiceRow row;
  row.name = "web";
  EXPECT_TRUE(accepted_row(row));
  row.state = static_cast<ServiceState>(4);
  EXPECT_FALSE(accepted_row(row));
  row.state = ServiceState::kReady;
  row.status = 256;
  EXPECT_FALSE(accepted_row(row));
  row.status = 0;
  row.name = {};
  EXPECT_FALSE(accepted_row(row));
}

}  // namespace
}  // namespace carrel::protocol
