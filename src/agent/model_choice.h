#pragma once

#include <memory>
#include <string>

#include "agent/model.h"
#include "agent/profile.h"
#include "base/result.h"
#include "storage/home.h"

namespace carrel::agent {

// "PROVIDER:NAME" over a choice.
Status choose_model(std::string_view text, ModelChoice& choice);

// The model that was chosen. Its key comes from where the choice says, or else from the usual
// variable (ANTHROPIC_API_KEY, OPENAI_API_KEY), or else from the secret of the provider's name.
// Where nothing was chosen, CARREL_MODEL decides. The file of a scripted model is read here.
Result<std::unique_ptr<Model>> make_model(const storage::Home& home, ModelChoice choice);

}  // namespace carrel::agent
