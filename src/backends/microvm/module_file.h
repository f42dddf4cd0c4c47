#pragma once

#include <string>

#include "base/result.h"

// A kernel's modules as files. Debian 12 installs them as they are, Debian 13 compresses them with
// xz and Ubuntu with zstd; `modules.order` names them without that ending.
namespace carrel::microvm {

// The content of the module "…/name.ko", which may be compressed as "…/name.ko.xz" or "….ko.zst".
// kUnsupported: there is none of these, or it is damaged or larger than a module can be.
Result<std::string> read_module(const std::string& path);

}  // namespace carrel::microvm
