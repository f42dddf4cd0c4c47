#include "cli/image_sources.h"

#include <unistd.h>

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

}  // namespace

int import_images(const Context& context, const storage::Home& home,
                  const std::vector<std::string>& words) {
  if (words.size() != 1) {
    return fail(context, Error{Code::kInvalid, 0, "image import needs one SOURCE",
                               "a directory, an archive, or - for the standard input"});
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
