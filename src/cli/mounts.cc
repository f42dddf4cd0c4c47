#include "cli/mounts.h"

#include <string>

#include "backends/native/mounts.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"
#include "storage/home.h"

namespace carrel::cli {

Result<storage::OwnPlaces> own_places(const Arguments& arguments) {
  storage::OwnPlaces own;
  CARREL_ASSIGN(own.state, storage::home_path());
  own.policy_file = config_file(arguments).value_or("");
  return own;
}

Result<std::vector<native::GivenTree>> open_mounts(const Context& context,
                                                   const policy::Spec& spec) {
  if (spec.mounts.empty()) {
    return std::vector<native::GivenTree>();
  }
  CARREL_ASSIGN(const storage::OwnPlaces own, own_places(context.arguments));
  CARREL_ASSIGN(std::vector<native::GivenTree> trees, native::open_mounts(spec, own));
  for (const native::GivenTree& tree : trees) {
    if (!context.json() && !tree.hidden.empty()) {
      print_error("carrel: mount " + tree.target + ": " + native::hidden_text(tree) + "\n");
    }
  }
  return trees;
}

}  // namespace carrel::cli
