#pragma once

#include <string>

#include "backends/microvm/fuse_message.h"
#include "backends/microvm/nbd.h"
#include "base/result.h"
#include "base/unique_fd.h"

// A read-only block device as a file, for a VMM that opens files and speaks no protocol of blocks:
// a mount of FUSE that is a single file. The host's kernel is who asks, on behalf of the VMM.
namespace carrel::microvm {

// Whether the id that a machine runs as may use FUSE; kUnsupported: why not.
Status check_drives();

// In the namespaces of the machine, before the host's root is left.
Result<UniqueFd> open_drive();
// Makes it what is at this path, a file.
Status mount_drive(int device, const std::string& place);

// Answers one request. Nothing but looking at the file and reading it is answered with more than an
// error.
void answer_drive(const FuseRequest& request, Blocks& blocks, FuseReply& reply);
// Answers until nobody has it mounted any more.
void serve_drive(int device, Blocks& blocks);

}  // namespace carrel::microvm
