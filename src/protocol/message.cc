#include "protocol/message.h"

namespace carrel::protocol {

void write_list(Writer& writer, const StringList& list) {
  writer.u32(list.count);
  writer.bytes(list.data);
}

StringList read_list(Reader& reader) {
  StringList list;
  list.count = reader.u32();
  list.data = reader.bytes(kMaxText);
  if (!reader.ok() || list.count > kMaxArguments) {
    reader.fail();
    return {};
  }
  std::uint32_t strings = 0;
  std::size_t length = 0;
  for (char c : list.data) {
    ++length;
    if (length > kMaxArgument) {
      reader.fail();
      return {};
    }
    if (c == '\0') {
      ++strings;
      length = 0;
    }
  }
  if (length != 0 || strings != list.count) {
    reader.fail();
    return {};
  }
  return list;
}

namespace {

std::span<const unsigned char> as_bytes(std::string_view payload) {
  return {reinterpret_cast<const unsigned char*>(payload.data()), payload.size()};
}

}  // namespace

void write_start(Writer& writer, const Start& start) {
  writer.u8(static_cast<std::uint8_t>(start.kind));
  writer.u32(start.flags);
  writer.u64(start.timeout_ms);
  writer.u16(start.rows);
  writer.u16(start.columns);
  writer.u16(start.caller);
  writer.bytes(start.workdir);
  writer.bytes(start.session);
  writer.bytes(start.text);
  write_list(writer, start.arguments);
  write_list(writer, start.environment);
}

bool parse_start(std::string_view payload, Start& start) {
  Reader reader(as_bytes(payload));
  std::uint8_t kind = reader.u8();
  start.kind = static_cast<StartKind>(kind);
  start.flags = reader.u32();
  start.timeout_ms = reader.u64();
  start.rows = reader.u16();
  start.columns = reader.u16();
  start.caller = reader.u16();
  start.workdir = reader.text(kMaxPath);
  start.session = reader.text(kMaxName);
  start.text = reader.text(kMaxText);
  start.arguments = read_list(reader);
  start.environment = read_list(reader);
  if (!reader.finished() || (start.flags & ~std::uint32_t{kStartAllFlags}) != 0 ||
      start.timeout_ms == 0 || start.timeout_ms > kMaxTimeoutMs) {
    return false;
  }
  if (!start.workdir.empty() && start.workdir.front() != '/') {
    return false;
  }
  switch (start.kind) {
    case StartKind::kExec:
      return start.arguments.count > 0 && start.text.empty() && start.session.empty();
    case StartKind::kShell:
      return start.arguments.count == 0 && start.environment.count == 0 && start.workdir.empty() &&
             (start.flags & kStartTerminal) == 0;
    case StartKind::kFiles:
    case StartKind::kRelays:
      return start.arguments.count == 0 && start.environment.count == 0 && start.workdir.empty() &&
             start.text.empty() && start.session.empty() && start.flags == 0;
    case StartKind::kService:
      break;
  }
  return false;
}

void write_exit(Writer& writer, const Exit& exit) {
  writer.u8(static_cast<std::uint8_t>(exit.kind));
  writer.u8(exit.flags);
  writer.u32(exit.code);
  writer.u32(exit.signal);
  writer.u32(exit.error_number);
  writer.u64(exit.duration_us);
  writer.u64(exit.stdout_bytes);
  writer.u64(exit.stderr_bytes);
  writer.bytes(exit.cwd);
}

bool parse_exit(std::string_view payload, Exit& exit) {
  Reader reader(as_bytes(payload));
  std::uint8_t kind = reader.u8();
  exit.kind = static_cast<EndKind>(kind);
  exit.flags = reader.u8();
  exit.code = reader.u32();
  exit.signal = reader.u32();
  exit.error_number = reader.u32();
  exit.duration_us = reader.u64();
  exit.stdout_bytes = reader.u64();
  exit.stderr_bytes = reader.u64();
  exit.cwd = reader.text(kMaxPath);
  return reader.finished() && kind >= 1 && kind <= 5 &&
         (exit.flags & ~std::uint8_t{kExitAllFlags}) == 0 && exit.code <= 255 &&
         exit.signal <= 64 && exit.error_number <= 4095;
}

void write_command_row(Writer& writer, const CommandRow& row) {
  writer.u64(row.id);
  writer.u8(row.running);
  writer.u8(static_cast<std::uint8_t>(row.kind));
  writer.u64(row.started_ms);
  writer.u64(row.stdout_start);
  writer.u64(row.stdout_end);
  writer.u64(row.stderr_start);
  writer.u64(row.stderr_end);
  writer.bytes(row.title);
}

bool parse_command_row(std::string_view payload, CommandRow& row) {
  Reader reader(as_bytes(payload));
  row.id = reader.u64();
  row.running = reader.u8();
  std::uint8_t kind = reader.u8();
  row.kind = static_cast<StartKind>(kind);
  row.started_ms = reader.u64();
  row.stdout_start = reader.u64();
  row.stdout_end = reader.u64();
  row.stderr_start = reader.u64();
  row.stderr_end = reader.u64();
  row.title = reader.text(kMaxReason);
  return reader.finished() && row.running <= 1 && (kind == 1 || kind == 2 || kind == 4) &&
         row.stdout_start <= row.stdout_end && row.stderr_start <= row.stderr_end;
}

void write_connect(Writer& writer, const Connect& connect) {
  writer.u16(connect.port);
  writer.u8(static_cast<std::uint8_t>(connect.family));
}

bool parse_connect(std::string_view payload, Connect& connect) {
  Reader reader(as_bytes(payload));
  connect.port = reader.u16();
  std::uint8_t family = reader.u8();
  connect.family = static_cast<LoopbackFamily>(family);
  return reader.finished() && connect.port != 0 && (family == 4 || family == 6);
}

}  // namespace carrel::protocol
