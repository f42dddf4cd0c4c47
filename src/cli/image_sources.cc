#include "cli/image_sources.h"

#include <fcntl.h>
#include <unistd.h>

#include "backends/docker/engine.h"
#include "backends/docker/images.h"
#include "cli/image_output.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "storage/images/build_debian.h"
#include "storage/images/import.h"
#include "storage/images/pull.h"

namespace carrel::cli {

namespace {

std::string name_option(const Context& context) {
  return std::string(context.arguments.value(OptionId::kImageName).value_or(""));
}

// Whether an engine gets the image first, or has it.
enum class Engine { kHas, kGets };

// An image of a Docker engine: what it saves, in a file that has no name.
Result<UniqueFd> from_engine(const storage::Home& home, const std::string& name, Engine engine,
                             ProgressLine& line) {
  const docker::ImageListener listener = [&](const docker::ImageProgress& progress) {
    line.show([&] { return progress_text({progress.step, progress.done, progress.whole}); });
  };
  const std::string address = docker::usual_address();
  if (engine == Engine::kGets) {
    CARREL_TRY(docker::pull(address, name, listener));
  }
  UniqueFd file(::open(home.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return system_error("make a file for the image");
  }
  CARREL_TRY(docker::save(address, name, file.get(), listener));
  return file;
}

// Takes it into the store. `source` is "docker:NAME".
int take_from_engine(const Context& context, const storage::Home& home, const std::string& source,
                     Engine engine) {
  ProgressLine line(context);
  const std::string name = source.substr(docker::kImageScheme.size());
  auto saved = name.empty() ? Error{Code::kInvalid, 0, "docker: needs the name of an image", {}}
                            : from_engine(home, name, engine, line);
  if (!saved.ok()) {
    line.clear();
    return fail(context, saved.error());
  }
  storage::ImportRequest request;
  request.source = "/proc/self/fd/" + std::to_string(saved.value().get());
  request.name = name_option(context);
  request.listener = [&](const storage::Progress& progress) {
    line.show([&] { return progress_text(progress); });
  };
  auto imported = storage::import_image(home, request);
  line.clear();
  if (!imported.ok()) {
    Error error = imported.error();
    if (const std::size_t at = error.message.find(request.source); at != std::string::npos) {
      error.message.replace(at, request.source.size(), source);
    }
    return fail(context, error);
  }
  print_imported(context, imported.value());
  return 0;
}

}  // namespace

int import_images(const Context& context, const storage::Home& home,
                  const std::vector<std::string>& words) {
  if (words.size() != 1) {
    return fail(context, Error{Code::kInvalid, 0, "image import needs one SOURCE",
                               "a directory, an archive, - for the standard input, or "
                               "docker:NAME"});
  }
  if (words.front().starts_with(docker::kImageScheme)) {
    return take_from_engine(context, home, words.front(), Engine::kHas);
  }
  ProgressLine line(context);
  storage::ImportRequest request;
  request.source = words.front();
  request.name = name_option(context);
  request.listener = [&](const storage::Progress& progress) {
    line.show([&] { return progress_text(progress); });
  };
  auto imported = storage::import_image(home, request);
  line.clear();
  if (!imported.ok()) {
    return fail(context, imported.error());
  }
  print_imported(context, imported.value());
  return 0;
}

int pull_image(const Context& context, const storage::Home& home,
               const std::vector<std::string>& words) {
  if (words.size() != 1) {
    return fail(context, Error{Code::kInvalid, 0, "image pull needs one REFERENCE",
                               "like debian:12 or localhost:5000/tool:v1"});
  }
  if (words.front().starts_with(docker::kImageScheme)) {
    return take_from_engine(context, home, words.front(), Engine::kGets);
  }
  ProgressLine line(context);
  storage::PullRequest request;
  request.reference = words.front();
  request.name = name_option(context);
  request.plain_http = context.arguments.has(OptionId::kInsecureHttp)
                           ? http::PlainHttp::kAnywhere
                           : http::PlainHttp::kLoopbackOnly;
  request.listener = [&](const storage::Progress& progress) {
    line.show([&] { return progress_text(progress); });
  };
  auto pulled = storage::pull_image(home, request);
  line.clear();
  if (!pulled.ok()) {
    return fail(context, pulled.error());
  }
  print_imported(context, {pulled.value().image});
  if (pulled.value().what == storage::Pulled::What::kUnchanged && !context.json() &&
      ::isatty(STDERR_FILENO) != 0) {
    print_error("carrel: '" + pulled.value().image.record.name + "' is up to date\n");
  }
  return 0;
}

int build_image(const Context& context, const storage::Home& home,
                const std::vector<std::string>& words) {
  if (!context.arguments.has(OptionId::kDebian)) {
    return fail(context, Error{Code::kInvalid, 0, "image build needs to know from what",
                               "--debian builds from Debian packages"});
  }
  ProgressLine line(context);
  storage::DebianBuild request;
  request.packages = words;
  request.name = name_option(context);
  request.suite = std::string(context.arguments.value(OptionId::kSuite).value_or("bookworm"));
  request.listener = [&](const storage::Progress& progress) {
    line.show([&] { return progress_text(progress); });
  };
  auto built = storage::build_debian(home, request);
  line.clear();
  if (!built.ok()) {
    return fail(context, built.error());
  }
  print_imported(context, {built.value()});
  return 0;
}

}  // namespace carrel::cli
