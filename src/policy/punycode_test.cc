#include "policy/punycode.h"

#include <gtest/gtest.h>

#include <utility>

namespace carrel::policy {
namespace {

TEST(Punycode, LabelsBecomeWhatEveryProgramMakesOfThem) {
  for (const auto& [label, ascii] : {
           std::pair{"bücher", "xn--bcher-kva"},
           {"münchen", "xn--mnchen-3ya"},
           {"παράδειγμα", "xn--hxajbheg2az3al"},
           {"пример", "xn--e1afmkfd"},
           {"испытание", "xn--80akhbyknj4f"},
           {"例え", "xn--r8jz45g"},
           {"测试", "xn--0zwm56d"},
           {"테스트", "xn--9t4b11yi5a"},
           {"テスト", "xn--zckzah"},
           {"łódź", "xn--d-uga0v4h"},
       }) {
    EXPECT_EQ(to_a_label(label), ascii) << label;
  }
}

TEST(Punycode, WhatHasMoreThanOneReadingIsRefused) {
  for (const std::string_view label :
       {"straße", "Bücher-Ü", "ς",        "u\u0308ber", "ａｂｃ",   "א",  "مثال", "x\u200dy",
        "a。b",   "①",        "ŉ",        "ſ",          "ĲĲ",       "-ü", "ü-",   "ab--ü",
        "ü_",     "ü b",      "a\u00adü", "\xff",       "\xc0\xaf", ""}) {
    EXPECT_EQ(to_a_label(label), std::nullopt) << label;
  }
}

}  // namespace
}  // namespace carrel::policy
