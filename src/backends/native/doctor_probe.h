#pragma once

#include "backends/native/doctor_facts.h"
#include "base/result.h"
#include "kernel/cgroup_layout.h"
#include "storage/home.h"

namespace carrel::native {

// Tries everything that a sandbox is made of, in throw-away processes with namespaces of their own,
// and at last a complete sandbox. Nothing is mounted in the host's namespaces and nothing is left
// behind. Takes a fraction of a second. `home` may be an Error: that is a finding, too.
DoctorFacts examine_host(Result<storage::Home>& home);

// The parts. The kernel's features without control groups:
void try_features(DoctorFacts& facts);
// The limits, on a group of its own in `layout` that is removed again:
void try_groups(const kernel::CgroupLayout& layout, DoctorFacts& facts);

}  // namespace carrel::native
