#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/parsed.h"
#include "policy/host.h"

namespace carrel::dns {

enum class Pointers { kRefused, kFollowed };

// A name of a DNS message in lower case, with dots between its labels and none at its end. Bytes
// that no host name has are written \DDD, so that two names are the same if their texts are.
struct Name {
  std::string text;     // empty: the root
  std::size_t end = 0;  // where in the message the next field is
};

// The name at `start`. Nothing: it goes beyond the message, is longer than 255 bytes, or has a
// pointer that is refused or does not point back.
std::optional<Name> read_name(Bytes message, std::size_t start, Pointers pointers);

// The name as a host, if it can be one.
std::optional<policy::Host> host_of(const Name& name);

// A name of a host in the form of a message.
void append_name(std::vector<std::uint8_t>& message, const policy::Host& name);
void append_u16(std::vector<std::uint8_t>& message, std::size_t number);

}  // namespace carrel::dns
