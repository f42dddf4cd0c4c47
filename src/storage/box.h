#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::storage {

// What a client needs to reach a long-lived sandbox, in run/box/ID/record: small enough that a
// command pays nothing for it. The database has the rest.
struct BoxRecord {
  std::string id;
  std::string name;
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // of the guest, clock ticks since boot
  std::string boot_id;
  std::int64_t timeout_ms = 0;   // the default of its commands
  std::string workdir;
  std::string cgroup_parent;
};

Status write_record(const Home& home, const BoxRecord& record);
Result<BoxRecord> read_record(const Home& home, const std::string& id);

// Finds the sandbox that a person means: its id, its name, or the beginning of its id if no other
// begins so. kNotFound: "Sandbox x not found".
Result<BoxRecord> find_box(const Home& home, const std::string& named);
std::vector<std::string> box_ids(const Home& home);

// Whether the process of the record is still the one that it names.
bool is_alive(const BoxRecord& record);

// A process's start time in clock ticks since boot; 0 when there is no such process.
std::uint64_t start_time_of(pid_t pid);
std::string boot_id();

// Makes run/box/ID and binds the guest's socket in it; the guest will listen.
Result<UniqueFd> bind_socket(const Home& home, const std::string& id);
// Connects to the socket and checks that the guest of the record answers there.
Result<UniqueFd> connect_box(const Home& home, const BoxRecord& record);
Status remove_box(const Home& home, const std::string& id);

}  // namespace carrel::storage
