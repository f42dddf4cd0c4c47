#pragma once

#include <memory>
#include <vector>

#include "tools/tool.h"
#include "tools/workplace.h"

namespace carrel::tools {

// create_file, str_replace, full_file_rewrite, delete_file, read_file and list_files, over `files`,
// which is borrowed. Paths are relative to the workspace and stay in it.
std::vector<std::string> file_tool_names();
std::unique_ptr<Tool> make_file_tool(const std::string& name, FileStore& files);

}  // namespace carrel::tools
