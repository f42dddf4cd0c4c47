#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/parsed.h"
#include "policy/host.h"

namespace carrel::dns {

// Queries for addresses and their answers (RFC 1035), and EDNS0 (RFC 6891). What a server sends is
// hostile: lengths, counts and pointers are checked, and nothing here calls itself.

inline constexpr std::size_t kLargestMessage = 4096;  // of a datagram
inline constexpr std::size_t kLargestStreamMessage = 65535;
inline constexpr std::uint16_t kSafeDatagram = 1232;  // no path of today splits it
inline constexpr std::uint16_t kInternet = 1;         // the class of everything that has an answer

enum class RecordType : std::uint16_t { kA = 1, kCname = 5, kAaaa = 28, kOpt = 41 };
enum class ResponseCode : std::uint8_t {
  kNoError = 0,
  kFormatError = 1,
  kServerFailure = 2,
  kNoSuchName = 3,
  kNotImplemented = 4,
  kRefused = 5,
};

// One question. `name` is a name and no address.
struct Lookup {
  std::uint16_t id = 0;
  policy::Host name;
  RecordType type = RecordType::kA;
  std::optional<std::uint16_t> edns_size = {};  // how large a datagram the answer may be
};
std::vector<std::uint8_t> write_lookup(const Lookup& lookup);
// The same with its size before it, as it goes over TCP.
std::vector<std::uint8_t> write_stream_lookup(const Lookup& lookup);

// A number that nobody can guess, for the id of a lookup.
std::uint16_t random_id();

struct Answer {
  ResponseCode code = ResponseCode::kNoError;
  bool truncated = false;  // ask again over TCP
  std::vector<policy::IpAddress> addresses;
  bool unusable = false;  // of one that is refused: it is to this lookup, and no forgery

  // The server may not know EDNS0: it says that the query makes no sense.
  [[nodiscard]] bool refuses_format() const {
    return code == ResponseCode::kFormatError || code == ResponseCode::kNotImplemented;
  }
};
// The answer to a lookup: addresses of the name, or of what at most 16 aliases lead to. Refused:
// another id or question, names that point forward or in circles, and lengths that do not add up.
// A refused one has `unusable` set if its id and question are those of the lookup: there is no
// other to wait for. An answer that the query makes no sense needs no question.
Parsed<Answer> parse_answer(Bytes message, const Lookup& lookup);

}  // namespace carrel::dns
