#include <fcntl.h>

#include <charconv>
#include <string>

#include "base/files.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"
#include "policy/size.h"
#include "server/access.h"
#include "server/daemon.h"
#include "server/routes.h"

namespace carrel::cli {

namespace {

std::string option_of(const Context& context, OptionId id) {
  return std::string(context.arguments.value(id).value_or(""));
}

std::vector<std::string> list_of(const Context& context, OptionId id) {
  std::vector<std::string> list;
  std::string_view rest = context.arguments.value(id).value_or("");
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (!word.empty()) {
      list.emplace_back(word);
    }
  }
  return list;
}

// Prints a new token, of which the file gets no more than a digest.
Status add_token(const Context& context) {
  const std::string path = option_of(context, OptionId::kTokenFile);
  if (path.empty()) {
    return Error{Code::kInvalid, 0, "--new-token needs --token-file", {}};
  }
  CARREL_ASSIGN(
      const server::Access::NewToken token,
      server::Access::make_token(
          option_of(context, OptionId::kNewToken),
          context.arguments.has(OptionId::kReadOnly) ? server::Scope::kRead : server::Scope::kWrite,
          list_of(context, OptionId::kQuota)));
  CARREL_ASSIGN(const UniqueFd file,
                open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600));
  CARREL_TRY(write_all(file.get(), token.line));
  print(context.json() ? "{\"token\":" + json_string(token.secret) + "}\n" : token.secret + "\n");
  return {};
}

Result<server::DaemonOptions> daemon_options(const Context& context) {
  server::DaemonOptions options;
  CARREL_ASSIGN(options.create_defaults,
                sandbox_spec(context.arguments, policy::Operation::kCreate));
  CARREL_ASSIGN(options.run_defaults, sandbox_spec(context.arguments, policy::Operation::kRun));
  options.listen = list_of(context, OptionId::kListen);
  options.hosts = list_of(context, OptionId::kServedHosts);
  options.token_file = option_of(context, OptionId::kTokenFile);
  options.certificate_file = option_of(context, OptionId::kTlsCertificate);
  options.key_file = option_of(context, OptionId::kTlsKey);
  if (const auto idle = context.arguments.value(OptionId::kIdleExit); idle.has_value()) {
    CARREL_ASSIGN(const auto time, policy::parse_duration({"--idle-exit", *idle}));
    options.idle_exit = std::chrono::ceil<std::chrono::seconds>(time);
  }
  if (const auto most = context.arguments.value(OptionId::kMostSandboxes); most.has_value()) {
    std::from_chars(most->data(), most->data() + most->size(), options.most_sandboxes);
  }
  if (const auto warm = context.arguments.value(OptionId::kWarm); warm.has_value()) {
    std::size_t count = 0;
    std::from_chars(warm->data(), warm->data() + warm->size(), count);
    options.warm = count;
  }
  options.otlp = option_of(context, OptionId::kOtlp);
  options.webhook.url = option_of(context, OptionId::kWebhook);
  if (const std::string path = option_of(context, OptionId::kWebhookSecret); !path.empty()) {
    CARREL_ASSIGN(options.webhook.secret, read_file_at(AT_FDCWD, path, 4096));
    while (!options.webhook.secret.empty() && options.webhook.secret.back() == '\n') {
      options.webhook.secret.pop_back();
    }
  }
  for (const std::string& part : list_of(context, OptionId::kReserve)) {
    manager::Quota kept;
    CARREL_TRY(manager::add_to_quota(part, kept));
    if (kept.sandboxes.has_value() || kept.cpu_millis.has_value()) {
      return Error{Code::kInvalid, 0, "--reserve is of memory and disk", {}};
    }
    options.reserve.memory_bytes = kept.memory_bytes.value_or(options.reserve.memory_bytes);
    options.reserve.disk_bytes = kept.disk_bytes.value_or(options.reserve.disk_bytes);
  }
  return options;
}

}  // namespace

int serve_command(const Context& context) {
  if (context.arguments.has(OptionId::kOpenapi)) {
    print(server::openapi().dump(2) + "\n");
    return 0;
  }
  if (context.arguments.has(OptionId::kNewToken)) {
    const Status added = add_token(context);
    return added.ok() ? 0 : fail(context, added.error());
  }
  auto options = daemon_options(context);
  if (!options.ok()) {
    return fail(context, options.error());
  }
  const Status served = server::run_daemon(options.value());
  return served.ok() ? 0 : fail(context, served.error());
}

}  // namespace carrel::cli
