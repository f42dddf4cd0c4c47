#include "cli/terminal_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace carrel::cli {
namespace {

std::string whole(std::string_view text) {
  TerminalFilter filter;
  std::string out = filter.filter(text);
  return out + filter.finish();
}

TEST(TerminalFilter, TextAndColoursPass) {
  for (const char* text : {"plain\n", "a\tb\r\n", "\x1b[31mred\x1b[0m", "\x1b[1;38;5;12mx\x1b[m",
                           "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"}) {
    EXPECT_EQ(whole(text), text);
  }
}

TEST(TerminalFilter, EverythingElseIsShownAndNotObeyed) {
  EXPECT_EQ(whole("\x1b]52;c;AAAA\x07"), "^[]52;c;AAAA^G");  // clipboard
  EXPECT_EQ(whole("\x1b]0;title\x1b\\"), "^[]0;title^[\\");
  EXPECT_EQ(whole("\x1b[2J\x1b[1;1H"), "^[[2J^[[1;1H");
  EXPECT_EQ(whole("\x1bP$q\"p\x1b\\"), "^[P$q\"p^[\\");  // DECRQSS
  EXPECT_EQ(whole("\x1b[6n"), "^[[6n");                  // a question that the terminal answers
  EXPECT_EQ(whole("a\bb\x7f"), "a^Hb^?");
}

TEST(TerminalFilter, HiddenControlsAreReplaced) {
  EXPECT_EQ(whole("\xc2\x9b"
                  "2J"),
            "\xef\xbf\xbd"
            "2J");  // CSI as C1
  EXPECT_EQ(whole("a\xe2\x80\xae"
                  "b"),
            "a\xef\xbf\xbd"
            "b");  // right-to-left override
  EXPECT_EQ(whole("a\xe2\x81\xa6"
                  "b"),
            "a\xef\xbf\xbd"
            "b");  // isolate
}

TEST(TerminalFilter, PiecesGiveTheSameAsTheWhole) {
  const std::string text = "x\x1b[31mred\x1b]52;c;A\x07\xe2\x80\xae\xc2\x9b\xe2\x82\xac\x1b[";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    TerminalFilter filter;
    std::string out = filter.filter(std::string_view(text).substr(0, cut));
    out += filter.filter(std::string_view(text).substr(cut));
    out += filter.finish();
    EXPECT_EQ(out, whole(text)) << cut;
  }
}

TEST(TerminalFilter, AnEndlessColourIsNotKeptForEver) {
  TerminalFilter filter;
  std::string out = filter.filter("\x1b[" + std::string(1000, '1'));
  EXPECT_GT(out.size(), 900U);
}

}  // namespace
}  // namespace carrel::cli
