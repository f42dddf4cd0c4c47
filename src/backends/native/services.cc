#include "backends/native/services.h"

#include <chrono>
#include <string>
#include <vector>

#include "protocol/service.h"
#include "sandbox/command.h"

namespace carrel::native {

namespace {

constexpr std::chrono::milliseconds kProbeTimeout{10'000};

// Both outputs as one, so that whoever reads them later has them in their order.
Result<std::string> start_of(const std::vector<std::string>& arguments,
                             std::chrono::milliseconds timeout) {
  sandbox::CommandRequest request;
  request.arguments = arguments;
  request.timeout = timeout;
  request.merged = true;
  return sandbox::encode_start(request, sandbox::Input::kNone);
}

}  // namespace

Status send_services(sandbox::GuestStream& stream, const policy::Spec& spec) {
  for (const policy::Service& service : spec.services) {
    CARREL_ASSIGN(const std::string program,
                  start_of(service.arguments, std::chrono::milliseconds(protocol::kMaxTimeoutMs)));
    std::string probe;
    if (!service.ready_command.empty()) {
      CARREL_ASSIGN(probe, start_of(service.ready_command, kProbeTimeout));
    }
    std::vector<unsigned char> buffer(program.size() + probe.size() + 1024);
    protocol::Writer writer(buffer);
    protocol::write_service(writer, {service.name, service.ready_port, program, probe});
    CARREL_TRY(stream.send(0, protocol::FrameType::kService,
                           {reinterpret_cast<const char*>(buffer.data()), writer.size()}));
  }
  return {};
}

}  // namespace carrel::native
