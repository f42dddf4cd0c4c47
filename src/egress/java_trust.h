#pragma once

#include <string>

#include "base/result.h"

namespace carrel::egress {

// A key store of certificates that a Java virtual machine trusts, from their texts as PEM. It is of
// the type JKS, with the usual password: unlike PKCS #12 it can be written without looking into the
// certificates, of which a host has some hundred.
Result<std::string> java_trust_store(const std::string& certificates);

}  // namespace carrel::egress
