#include "protocol/service.h"

namespace carrel::protocol {

namespace {

std::span<const unsigned char> service_bytes(std::string_view payload) {
  return {reinterpret_cast<const unsigned char*>(payload.data()), payload.size()};
}

bool is_exec(std::string_view payload) {
  Start start;
  return parse_start(payload, start) && start.kind == StartKind::kExec &&
         (start.flags & (kStartTerminal | kStartStdin)) == 0;
}

}  // namespace

void write_service(Writer& writer, const Service& service) {
  writer.bytes(service.name);
  writer.u16(service.port);
  writer.bytes(service.program);
  writer.bytes(service.probe);
}

bool parse_service(std::string_view payload, Service& service) {
  Reader reader(service_bytes(payload));
  service.name = reader.text(kMaxName);
  service.port = reader.u16();
  service.program = reader.bytes(kMaxServiceStart);
  service.probe = reader.bytes(kMaxServiceStart);
  return reader.finished() && !service.name.empty() && is_exec(service.program) &&
         (service.probe.empty() || (service.port == 0 && is_exec(service.probe)));
}

void write_service_row(Writer& writer, const ServiceRow& row) {
  writer.bytes(row.name);
  writer.u8(static_cast<std::uint8_t>(row.state));
  writer.u32(row.starts);
  writer.u64(row.command);
  writer.u8(row.ended);
  writer.u32(row.status);
  writer.u64(row.ready_ms);
}

bool parse_service_row(std::string_view payload, ServiceRow& row) {
  Reader reader(service_bytes(payload));
  row.name = reader.text(kMaxName);
  const std::uint8_t state = reader.u8();
  row.state = static_cast<ServiceState>(state);
  row.starts = reader.u32();
  row.command = reader.u64();
  row.ended = reader.u8();
  row.status = reader.u32();
  row.ready_ms = reader.u64();
  return reader.finished() && !row.name.empty() && state >= 1 && state <= 3 && row.ended <= 1 &&
         row.status <= 255;
}

}  // namespace carrel::protocol
