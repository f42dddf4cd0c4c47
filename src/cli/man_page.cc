#include "cli/man_page.h"

#include "cli/environment.h"
#include "cli/help.h"
#include "cli/options.h"
#include "policy/given.h"
#include "policy/settings.h"

namespace carrel::cli {
namespace {

using policy::concat;

// Text for the body of the page: a '-' that is one, no escapes, no requests, one line.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && out.empty()) {
      out += "\\&";
    }
    switch (c) {
      case '-':
        out += "\\-";
        break;
      case '\\':
        out += "\\e";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '\n':
        out += ' ';
        break;
      default:
        out += c;
    }
  }
  return out;
}

void append_section(std::string& out, std::string_view title) {
  out += concat({".SH ", title, "\n"});
}

void append_entry(std::string& out, std::string_view bold, std::string_view italic,
                  std::string_view text) {
  out += concat({".TP\n\\fB", roff(bold), "\\fR", italic.empty() ? "" : " \\fI", roff(italic),
                 italic.empty() ? "" : "\\fR", "\n", roff(text), "\n"});
}

std::string sentence(std::string_view text) {
  std::string out(text);
  if (!out.empty() && out.front() >= 'a' && out.front() <= 'z') {
    out.front() = static_cast<char>(out.front() - 'a' + 'A');
  }
  return concat({out, "."});
}

void append_option(std::string& out, const OfferedOption& option) {
  const char short_name[] = {'-', option.short_name, ',', ' ', '\0'};
  append_entry(out, concat({option.short_name == 0 ? "" : short_name, "--", option.name}),
               option.placeholder, sentence(option.help));
}

void append_commands(std::string& out) {
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kHidden) {
      continue;
    }
    out += concat({".SS ", roff(row.name), "\n.B ", roff(usage_line(row)), "\n.PP\n",
                   roff(sentence(row.summary)), "\n"});
    if (!row.details.empty()) {
      out += concat({roff(row.details), "\n"});
    }
    for (const OfferedOption& option : offered_options(row)) {
      const bool common = option.name == "json" || option.name == "config" || option.name == "help";
      if (option.section == "Options" && !common) {
        append_option(out, option);
      }
    }
  }
}

// Who takes a setting, for those that not every sandbox option list has.
std::string takers(const policy::Setting& setting) {
  std::string names;
  for (const Command& row : commands()) {
    if (takes_setting(row, setting)) {
      names += concat({names.empty() ? "" : ", ", row.name});
    }
  }
  return names;
}

void append_settings(std::string& out) {
  for (const policy::Setting& setting : policy::settings()) {
    if (setting.offered != policy::Offered::kEverywhere) {
      continue;
    }
    append_entry(out, concat({"--", setting.name}), setting.placeholder,
                 concat({sentence(setting.help), " For ", takers(setting), "."}));
  }
}

void append_keys(std::string& out) {
  for (const policy::Setting& setting : policy::settings()) {
    if (setting.offered == policy::Offered::kNotBuilt) {
      continue;
    }
    std::string names = policy::key_name(setting.name);
    for (const std::string_view alias : setting.aliases) {
      names += concat({", ", alias});
    }
    append_entry(out, names, "", sentence(setting.help));
  }
}

void append_examples(std::string& out) {
  out += ".nf\n";
  for (const Command& row : commands()) {
    std::string_view examples = row.examples;
    while (!examples.empty()) {
      const std::string_view line = examples.substr(0, examples.find('\n'));
      examples.remove_prefix(line.size() + 1);
      out += concat({roff(line.substr(0, line.find('\t'))), "\n"});
    }
  }
  out += ".fi\n";
}

}  // namespace

std::string man_page(std::string_view version) {
  std::string out =
      concat({".TH CARREL 1 \"\" \"carrel ", roff(version), "\" \"User Commands\"\n"});
  append_section(out, "NAME");
  out += "carrel \\- run commands nobody has read, each in a room of its own\n";
  append_section(out, "SYNOPSIS");
  out += ".B carrel\n.I COMMAND\n[\\fIOPTIONS\\fR] ...\n";
  append_section(out, "DESCRIPTION");
  out +=
      "A sandbox has a read\\-only root, a /workspace and a /tmp of its own, no network, and "
      "limits\n"
      "that are always on. It needs no daemon, no image and no root. Where the host cannot "
      "enforce\n"
      "something the next best is used and reported; with \\fB\\-\\-require\\fR there is no "
      "sandbox\n"
      "instead.\n";
  append_section(out, "COMMANDS");
  append_commands(out);
  append_section(out, "COMMON OPTIONS");
  for (const OptionId id : {OptionId::kJson, OptionId::kConfig, OptionId::kHelp}) {
    const Option& row = option(id);
    append_option(out, {"", row.short_name, row.name, row.placeholder, row.help, ""});
  }
  append_section(out, "SANDBOX OPTIONS");
  out +=
      "\\fISIZE\\fR is bytes or a number with k, m, g or t (powers of 1024); \\fITIME\\fR is "
      "seconds\n"
      "or a number with ms, s, m, h or d. The default is in brackets.\n";
  append_settings(out);
  append_section(out, "CONFIGURATION");
  out +=
      "A \\fIcarrel.toml\\fR has the same names as keys, at its top or in a table "
      "\\fB[sandbox]\\fR.\n"
      "Tables \\fB[run]\\fR (for run and code) and \\fB[create]\\fR go over them, options go over "
      "the file.\nUnknown keys and wrong types are errors.\n";
  append_keys(out);
  append_section(out, "ENVIRONMENT");
  for (const EnvironmentName& row : environment_names()) {
    append_entry(
        out, row.name, "",
        concat({sentence(row.help), row.name == "CARREL_HOME" ? " By default that is " : "",
                row.name == "CARREL_HOME" ? kDefaultHomes : "",
                row.name == "CARREL_HOME" ? "; carrel env prints it." : ""}));
  }
  append_section(out, "EXIT STATUS");
  out += "Of run, code, sh and exec: that of the command, or\n";
  append_entry(out, "124", "", "the command ran longer than its timeout");
  append_entry(out, "125", "", "carrel could not or would not run it");
  append_entry(out, "126", "", "the command cannot be run");
  append_entry(out, "127", "", "the command does not exist");
  out += ".PP\nOf the other commands: 0, or 2 for wrong usage, or another status for a failure.\n";
  append_section(out, "EXAMPLES");
  append_examples(out);
  return out;
}

}  // namespace carrel::cli
