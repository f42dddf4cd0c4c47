#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::storage {

// An image in a registry, as people write it: "debian", "debian:12", "ghcr.io/team/tool:v1",
// "localhost:5000/tool@sha256:HEX". Without a registry it is Docker Hub's; with neither a tag nor a
// digest it is "latest".
struct Reference {
  std::string registry;    // host, or host:port; "docker.io"
  std::string repository;  // "library/debian"
  std::string tag;         // empty: there is only the digest
  std::string digest;      // 64 hex digits; empty: the tag decides
};

// Strict: no path, URL or option can be hidden in what this returns.
Result<Reference> parse_reference(std::string_view text);

// In full: "docker.io/library/debian:12", with "@sha256:HEX" if that was asked for.
std::string to_string(const Reference& reference);

// The name that it gets in the store, with as little as people write: "debian:12". Without a tag,
// the beginning of the digest is one: "debian:sha256-0123456789ab".
std::string short_name(const Reference& reference);

}  // namespace carrel::storage
