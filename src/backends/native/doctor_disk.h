#pragma once

#include "backends/native/doctor.h"
#include "storage/home.h"

namespace carrel::native {

// Makes a small file system in a file of the state directory, as a workspace with a size has one,
// and mounts it nowhere. Nothing is left of it.
DiskFacts try_disk(const storage::Home& home);

// Who holds the size of a workspace.
Check check_disk(const DoctorFacts& facts);

}  // namespace carrel::native
