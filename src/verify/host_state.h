#pragma once

#include <map>
#include <string>
#include <vector>

namespace carrel::verify {

// A file as it is: what it holds, and which one it is.
std::string state_of(const std::string& path);

// The files by which a sandbox could take this host over, with what they hold.
std::map<std::string, std::string> host_state();
// The names of what differs.
std::vector<std::string> changed_since(const std::map<std::string, std::string>& before);

// How many processes of this host have this word as the first of their command line.
std::size_t count_processes(const std::string& word);

// The path by which the file system knows what this host has at `path`: another one where a mount
// is of a subvolume or of a directory.
std::string path_in_its_file_system(const std::string& path);

}  // namespace carrel::verify
