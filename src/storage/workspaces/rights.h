#pragma once

namespace carrel::storage {

// A workload may make files of its workspace that their owner cannot read. An ordinary user enters a
// user namespace of his own, in which that does not stop him: over his own files only. For a process
// of one thread that starts no sandboxes afterwards. Where there are no user namespaces, nothing
// changes. Root needs none.
void gain_rights_over_own_files();

}  // namespace carrel::storage
