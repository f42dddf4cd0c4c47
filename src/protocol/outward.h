#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// A connection that leaves a machine, as its first process tells it and the porter hands it on: by
// which of the sockets of a captive network it came, and where it was meant to go. A machine can
// lie about that as any program can ask for anything: it is what the policy is asked about.
namespace carrel::protocol {

enum class OutwardKind : std::uint8_t {
  kRedirected = 1,  // a program meant another address
  kProxy = 2,       // it asks a proxy; no address
  kDns = 3,         // it asks for names over TCP; no address
  kLookups = 4,     // the same by datagrams, one after the other as over TCP; no address
};

struct Outward {
  OutwardKind kind{};
  std::uint8_t version = 0;        // of the address: 4, 6 or, where there is none, 0
  unsigned char address[16] = {};  // of IPv4 the first four
  std::uint16_t port = 0;
};

inline constexpr std::size_t kOutwardSize = 20;

void write_outward(const Outward& outward, unsigned char* data);
// Strict: what is not needed is zero, and there is no byte more or less.
bool parse_outward(std::string_view data, Outward& outward);

// What the porter says to the egress process, one message each: that the machine's network is
// there, or an Outward with the connection's descriptor.
inline constexpr std::string_view kOutwardReady = "ready";

}  // namespace carrel::protocol
