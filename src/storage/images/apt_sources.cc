#include "storage/images/apt_sources.h"

#include <fcntl.h>

#include <algorithm>
#include <set>

#include "base/ascii.h"
#include "base/files.h"

namespace carrel::storage {

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (;;) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) {
      return words;
    }
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(" \t\r"), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

template <typename Visit>
void each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// What ends up on a line of its own, and so must be one word of it.
bool is_word(const std::string& text) {
  return !text.empty() && text.find_first_of("[]#\"'") == std::string::npos &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

void add(std::vector<AptSource>& sources, AptSource source) {
  if (!source.signed_by.starts_with('/') || !is_word(source.signed_by)) {
    source.signed_by.clear();  // a key itself, or a fingerprint
  }
  const auto bad = [](const std::string& word) { return !is_word(word); };
  std::erase_if(source.uris, bad);
  std::erase_if(source.suites, bad);
  std::erase_if(source.components, bad);
  if (!source.uris.empty() && !source.suites.empty() && !source.components.empty()) {
    sources.push_back(std::move(source));
  }
}

// "bookworm", "bookworm-updates", "bookworm-security" and "bookworm/updates" are bookworm's.
bool belongs_to(const std::string& name, const std::string& suite) {
  return name == suite || name == suite + "-updates" || name == suite + "-security" ||
         name == suite + "/updates";
}

std::string line(const AptSource& source, const std::string& uri, const std::string& suite,
                 const std::vector<std::string>& components) {
  std::string text = "deb ";
  if (!source.signed_by.empty()) {
    text += "[signed-by=" + source.signed_by + "] ";
  }
  text += uri + " " + suite;
  for (const std::string& component : components) {
    text += " " + component;
  }
  return text;
}

}  // namespace

std::vector<AptSource> parse_apt_lines(std::string_view text) {
  constexpr std::string_view kKey = "signed-by=";
  std::vector<AptSource> sources;
  each_line(text, [&](std::string_view row) {
    std::vector<std::string> words = words_of(row.substr(0, row.find('#')));
    if (words.empty() || words.front() != "deb") {
      return;
    }
    words.erase(words.begin());
    AptSource source;
    if (!words.empty() && words.front().starts_with('[')) {
      // Options are words between brackets, which may stand apart.
      bool open = true;
      while (open && !words.empty()) {
        std::string word = words.front();
        words.erase(words.begin());
        open = !word.ends_with(']');
        std::erase_if(word, [](char c) { return c == '[' || c == ']'; });
        if (word.starts_with(kKey)) {
          source.signed_by = word.substr(kKey.size());
        }
      }
    }
    if (words.size() >= 3) {
      source.uris = {words[0]};
      source.suites = {words[1]};
      source.components.assign(words.begin() + 2, words.end());
      add(sources, std::move(source));
    }
  });
  return sources;
}

std::vector<AptSource> parse_apt_stanzas(std::string_view text) {
  std::vector<AptSource> sources;
  AptSource source;
  bool on = true;
  bool binary = false;
  const auto end_stanza = [&] {
    if (on && binary) {
      add(sources, std::move(source));
    }
    source = {};
    on = true;
    binary = false;
  };
  each_line(text, [&](std::string_view row) {
    if (row.starts_with('#')) {
      return;
    }
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) {
      end_stanza();
      return;
    }
    const std::size_t colon = row.find(':');
    if (row.front() == ' ' || row.front() == '\t' || colon == std::string_view::npos) {
      return;  // the rest of a field of several lines, such as a key
    }
    const std::string field = lower(row.substr(0, colon));
    const std::vector<std::string> words = words_of(row.substr(colon + 1));
    if (field == "types") {
      binary = std::find(words.begin(), words.end(), "deb") != words.end();
    } else if (field == "uris") {
      source.uris = words;
    } else if (field == "suites") {
      source.suites = words;
    } else if (field == "components") {
      source.components = words;
    } else if (field == "signed-by" && words.size() == 1) {
      source.signed_by = words.front();
    } else if (field == "enabled" && words.size() == 1) {
      on = lower(words.front()) != "no" && lower(words.front()) != "false";
    }
  });
  end_stanza();
  return sources;
}

std::vector<AptSource> read_apt_sources() {
  std::vector<AptSource> sources;
  const auto take = [&](const std::string& path, auto parse) {
    if (const auto text = read_file_at(AT_FDCWD, path); text.ok()) {
      const std::vector<AptSource> found = parse(text.value());
      sources.insert(sources.end(), found.begin(), found.end());
    }
  };
  take("/etc/apt/sources.list", parse_apt_lines);
  const std::string folder = "/etc/apt/sources.list.d";
  const auto directory = open_at(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY);
  if (!directory.ok()) {
    return sources;
  }
  const auto names = list_directory(directory.value().get());
  for (const std::string& name : names.ok() ? names.value() : std::vector<std::string>()) {
    if (name.ends_with(".list")) {
      take(folder + "/" + name, parse_apt_lines);
    } else if (name.ends_with(".sources")) {
      take(folder + "/" + name, parse_apt_stanzas);
    }
  }
  return sources;
}

std::vector<std::string> lines_for_suite(const std::vector<AptSource>& sources,
                                         const std::string& suite) {
  std::vector<std::string> lines;
  bool has_main = false;
  for (const AptSource& source : sources) {
    for (const std::string& uri : source.uris) {
      for (const std::string& name : source.suites) {
        if (belongs_to(name, suite)) {
          lines.push_back(line(source, uri, name, source.components));
          has_main = has_main || name == suite;
        }
      }
    }
  }
  if (has_main) {
    return lines;
  }
  // Another release: from the mirrors of the host's own, which are those without a suffix.
  const std::set<std::string> known = {"bullseye", "bookworm", "trixie",  "forky",
                                       "sid",      "stable",   "testing", "unstable"};
  for (const AptSource& source : sources) {
    for (const std::string& name : source.suites) {
      if (known.contains(name)) {
        return {line(source, source.uris.front(), suite, {"main"})};
      }
    }
  }
  return {};
}

std::vector<std::string> local_mirrors(const std::vector<AptSource>& sources) {
  std::vector<std::string> paths;
  for (const AptSource& source : sources) {
    for (std::string_view uri : source.uris) {
      if (!uri.starts_with("file:") && !uri.starts_with("copy:")) {
        continue;
      }
      uri.remove_prefix(5);
      uri.remove_prefix(uri.starts_with("//") ? 2 : 0);
      if (uri.size() > 1 && uri.front() == '/' && uri.find("..") == std::string_view::npos) {
        paths.emplace_back(uri);
      }
    }
  }
  return paths;
}

}  // namespace carrel::storage
