#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/box.h"
#include "cli/context.h"
#include "sandbox/file_json.h"
#include "sandbox/files.h"
#include "sandbox/tree_from_host.h"

namespace carrel::cli {

// A sandbox whose files this command works on.
struct FileSession {
  storage::Home home;
  std::string id;
  storage::BoxUse use;
  sandbox::Files files;
};

// Finds the sandbox, checks the paths before anything else happens, and starts a session. A path
// that is refused is a security event.
Result<FileSession> open_files(const Context& context, const std::string& named,
                               const std::vector<std::string>& paths);

// Notes in the log what was done.
void note_file_work(const FileSession& session, std::string_view action, std::string_view path,
                    const Status& result);

using sandbox::add_bytes;
using sandbox::kind_name;
using sandbox::to_json;

// The words of `carrel file` after ACTION and ID. At least `least` of them, and at most `most`.
Result<std::vector<std::string>> file_words(const Context& context, std::size_t least,
                                            std::size_t most);

// The actions, in files by what they do. Each returns the exit status.
int show_file_action(const Context& context, std::string_view action);   // file_show.cc
int write_file_action(const Context& context, std::string_view action);  // file_write.cc

}  // namespace carrel::cli
