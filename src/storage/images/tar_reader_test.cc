#include "storage/images/tar_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "storage/images/images_test_support.h"

namespace carrel::storage {
namespace {

using ::testing::HasSubstr;

struct Seen {
  std::vector<TarEntry> entries;
  std::vector<std::string> contents;  // holes are zeros
  std::string error;
};

// All of an archive that arrives in pieces of that size.
Seen read_all_of(const std::string& bytes, std::size_t piece = 1000) {
  std::size_t at = 0;
  TarReader reader([&]() -> Result<std::string_view> {
    const std::string_view got = std::string_view(bytes).substr(at, piece);
    at += got.size();
    return got;
  });
  Seen seen;
  for (;;) {
    auto entry = reader.next();
    if (!entry.ok() || !entry.value().has_value()) {
      seen.error = entry.ok() ? "" : entry.error().message;
      return seen;
    }
    seen.entries.push_back(*entry.value());
    seen.contents.emplace_back(std::min<std::uint64_t>(entry.value()->size, 1U << 20), '\0');
    for (;;) {
      auto data = reader.data();
      if (!data.ok() || data.value().bytes.empty()) {
        seen.error = data.ok() ? "" : data.error().message;
        break;
      }
      seen.contents.back().replace(data.value().offset, data.value().bytes.size(),
                                   data.value().bytes);
    }
  }
}

std::vector<std::string> names_of(const Seen& seen) {
  std::vector<std::string> names;
  for (const TarEntry& entry : seen.entries) {
    names.push_back(entry.path);
  }
  return names;
}

// Decomposed, composed, no UTF-8 at all, surrogates, a byte order mark, control characters.
const std::vector<std::string> kNames = {"e\xcc\x81t\xc3\xa9",
                                         "caf\xe9",
                                         "\xff\xfe\x80",
                                         "\xed\xa0\x80",
                                         "\xef\xbb\xbf"
                                         "bom",
                                         "a\x01\x7f\\b",
                                         "A\xcc\x8a/\xe2\x84\xab"};

TEST(TarReader, NamesKeepTheirBytesInEveryForm) {
  for (const std::string& name : kNames) {
    Tar tar;
    tar.file(name, "ustar").link("l", name).hard_link(name + "2", name);
    tar.pax("path", name).pax("linkpath", name).link("short", "x");
    tar.add("././@LongLink", name + '\0', {.type = 'L'});
    tar.add("././@LongLink", name + '\0', {.type = 'K'}).link("short", "x");
    const Seen seen = read_all_of(tar.bytes());
    ASSERT_EQ(seen.error, "");
    ASSERT_EQ(seen.entries.size(), 5U);
    EXPECT_EQ(seen.entries[0].path, name);
    EXPECT_EQ(seen.contents[0], "ustar");
    EXPECT_EQ(seen.entries[1].target, name);
    EXPECT_EQ(seen.entries[2].path, name + "2");
    for (const std::size_t i : {3U, 4U}) {
      EXPECT_EQ(seen.entries[i].path, name) << i;
      EXPECT_EQ(seen.entries[i].target, name) << i;
    }
  }
}

TEST(TarReader, RecordsOfPaxAreTheNextEntrysAlone) {
  Tar tar;
  tar.pax("mtime", "1700000000.25").pax("SCHILY.xattr.user.a", "b").pax("path", "long");
  tar.file("a", "x", 04711).file("b", "y").add("g", "12 path=wrong\n", {.type = 'g'});
  tar.file("c", "z").add("old/", "", {.type = '\0'}).add("odd", "w", {.type = 'Q'});
  const Seen seen = read_all_of(tar.bytes(), 1);
  ASSERT_EQ(seen.error, "");
  ASSERT_EQ(seen.entries.size(), 5U);
  EXPECT_EQ(seen.entries[0].path, "long");
  EXPECT_EQ(seen.entries[0].mode, 04711U);
  EXPECT_EQ(seen.entries[0].modified.tv_sec, 1'700'000'000);
  EXPECT_EQ(seen.entries[0].modified.tv_nsec, 250'000'000);
  EXPECT_TRUE(seen.entries[0].has_attributes);
  EXPECT_EQ(seen.entries[1].path, "b");
  EXPECT_EQ(seen.entries[1].modified.tv_sec, 1'000'000'000);
  EXPECT_FALSE(seen.entries[1].has_attributes);
  EXPECT_EQ(seen.entries[2].path, "c");
  EXPECT_EQ(seen.entries[3].kind, TarEntry::Kind::kDirectory);
  EXPECT_EQ(seen.entries[4].kind, TarEntry::Kind::kFile);
  EXPECT_EQ(seen.contents[4], "w");
}

TEST(TarReader, SizeOfPaxIsThatOfTheContents) {
  Tar tar;
  tar.pax("size", "700").add("a", std::string(700, 'x'), {.claimed_size = "00000000000"});
  tar.file("b", "y");
  const Seen seen = read_all_of(tar.bytes());
  ASSERT_EQ(seen.error, "");
  EXPECT_EQ(seen.contents, (std::vector<std::string>{std::string(700, 'x'), "y"}));
}

TEST(TarReader, EmptyRecordsOfPaxStandForTheHeader) {
  Tar tar;
  tar.pax("path", "").pax("linkpath", "").link("l", "target");
  tar.pax("size", "").file("a", "text");
  tar.pax("path", "other").pax("path", "").pax("size", "9").pax("size", "").file("b", "x");
  const Seen seen = read_all_of(tar.bytes());
  ASSERT_EQ(seen.error, "");
  EXPECT_EQ(names_of(seen), (std::vector<std::string>{"l", "a", "b"}));
  EXPECT_EQ(seen.entries[0].target, "target");
  EXPECT_EQ(seen.contents, (std::vector<std::string>{"", "text", "x"}));
}

TEST(TarReader, AHardLinkHasNoContentsWhateverItsSize) {
  for (const bool is_pax : {false, true}) {
    Tar tar;
    tar.file("a", std::string(1024, 'x'));
    if (is_pax) {
      tar.pax("mtime", "1700000000").pax("size", "1024");
    }
    tar.add("l", "", {.type = '1', .target = "a", .claimed_size = "00000002000"});
    const Seen seen = read_all_of(tar.file("after", "y").bytes());
    ASSERT_EQ(seen.error, "") << is_pax;
    ASSERT_EQ(names_of(seen), (std::vector<std::string>{"a", "l", "after"})) << is_pax;
    EXPECT_EQ(seen.entries[1].kind, TarEntry::Kind::kHardLink) << is_pax;
    EXPECT_EQ(seen.contents[2], "y") << is_pax;
  }
}

TEST(TarReader, ContentsOfADirectoryByItsSlashAreSkipped) {
  const std::string inside = Tar().file("inside", "z").bytes();
  for (const char type : {'0', '\0'}) {
    Tar tar;
    tar.add("d/", inside, {.type = type}).file("after", "y");
    const Seen seen = read_all_of(tar.bytes());
    ASSERT_EQ(seen.error, "");
    ASSERT_EQ(names_of(seen), (std::vector<std::string>{"d/", "after"}));
    EXPECT_EQ(seen.entries[0].kind, TarEntry::Kind::kDirectory);
    EXPECT_EQ(seen.contents[1], "y");
  }
}

TEST(TarReader, ADirectoryHasNoPartsOfTheFileBeforeIt) {
  const std::string bytes = Tar()
                                .file("before", std::string(3000, 'x'))
                                .add("d/", std::string(100, 'z'), {.type = '0'})
                                .file("after", "y")
                                .bytes();
  bool given = false;
  TarReader reader([&]() -> Result<std::string_view> {
    return std::exchange(given, true) ? std::string_view() : std::string_view(bytes);
  });
  for (const std::size_t size : {3000U, 0U}) {
    const auto entry = reader.next();
    ASSERT_TRUE(entry.ok() && entry.value().has_value());
    std::size_t told = 0;
    for (auto data = reader.data(); data.ok() && !data.value().bytes.empty();
         data = reader.data()) {
      told += data.value().bytes.size();
    }
    EXPECT_EQ(told, size) << entry.value()->path;
  }
  const auto after = reader.next();
  ASSERT_TRUE(after.ok() && after.value().has_value());
  EXPECT_EQ(after.value()->path, "after");
}

TEST(TarReader, AVolumeLabelIsNoEntry) {
  Tar tar;
  tar.add("label", "", {.type = 'V'}).file("a", "x").add("again", "of it", {.type = 'V'});
  const Seen seen = read_all_of(tar.file("b", "y").bytes());
  ASSERT_EQ(seen.error, "");
  EXPECT_EQ(names_of(seen), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(seen.contents, (std::vector<std::string>{"x", "y"}));
}

TEST(TarReader, OneVolumeOfSeveralIsRefused) {
  for (const bool has_label : {false, true}) {
    Tar tar;
    if (has_label) {
      tar.add("label", "", {.type = 'V'});
    }
    const Seen seen = read_all_of(tar.add("rest", "xyz", {.type = 'M'}).file("a", "y").bytes());
    EXPECT_THAT(seen.error, HasSubstr("one volume of several")) << has_label;
    EXPECT_TRUE(seen.entries.empty()) << has_label;
  }
}

TEST(TarReader, SumsOfSignedBytesAreTaken) {
  const std::string name = "caf\xc3\xa9";
  std::string archive = Tar().file(name, "x").bytes();
  int sum = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<signed char>(archive[i]);
  }
  const auto with_sum = [&archive](int number) {
    std::snprintf(archive.data() + 148, 8, "%06o", static_cast<unsigned>(number));
    return read_all_of(archive);
  };
  const Seen seen = with_sum(sum);
  ASSERT_EQ(seen.error, "");
  EXPECT_EQ(names_of(seen), (std::vector<std::string>{name}));
  for (const int wrong : {sum - 256, sum + 1, sum + 256}) {
    EXPECT_THAT(with_sum(wrong).error, HasSubstr("no tar archive")) << wrong - sum;
  }
}

// The forms that GNU tar has had, as it writes them.
TEST(TarReader, SparseFilesOfGnuTarAreWhole) {
  Scratch scratch;
  std::string contents(900'000, '\0');
  for (std::size_t i = 0; i < 40; ++i) {
    contents.replace(i * 20'480, 3, "end");
  }
  const std::string file = scratch.write("sparse-e\xcc\x81", "");
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  for (std::size_t i = 0; i < 40; ++i) {
    ASSERT_EQ(::pwrite(fd, "end", 3, static_cast<off_t>(i * 20'480)), 3);
  }
  ASSERT_EQ(::ftruncate(fd, 900'000), 0);
  ::close(fd);
  for (const char* form : {"--format=gnu", "--format=posix --sparse-version=0.0",
                           "--format=posix --sparse-version=0.1",
                           "--format=posix --sparse-version=1.0", "--format=ustar"}) {
    const std::string sparse =
        std::string(form) == "--format=ustar" ? "" : "-S --hole-detection=raw ";
    const std::string command = "tar " + sparse + form + " -C " + scratch.path() + " -cf " +
                                scratch.path() + "/tar sparse-e\xcc\x81";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const std::string archive = scratch.read("tar");
    EXPECT_EQ(archive.size() < 500'000, !sparse.empty()) << "nothing is sparse: " << form;
    const Seen seen = read_all_of(archive);
    ASSERT_EQ(seen.error, "") << form;
    ASSERT_EQ(seen.entries.size(), 1U) << form;
    EXPECT_EQ(seen.entries[0].path, "sparse-e\xcc\x81") << form;
    EXPECT_EQ(seen.entries[0].size, 900'000U) << form;
    EXPECT_TRUE(seen.contents[0] == contents) << form;
  }
}

TEST(TarReader, SparseFilesThatContradictThemselvesAreRefused) {
  const auto sparse = [](const std::string& map, const std::string& size) {
    return read_all_of(Tar()
                           .pax("GNU.sparse.realsize", size)
                           .pax("GNU.sparse.map", map)
                           .file("s", "ab")
                           .bytes())
        .error;
  };
  EXPECT_EQ(sparse("0,1,5,1", "10"), "");
  for (const char* map : {"5,1,0,1", "0,1,0,1", "0,1", "0,2,5,1", "9,2", "0,1,5", "0,x",
                          "99999999999999999999,2", "9223372036854775807,2"}) {
    EXPECT_THAT(sparse(map, "10"), HasSubstr("damaged")) << map;
  }
  EXPECT_THAT(sparse("0,2", "-1"), HasSubstr("damaged"));
}

// A stream that goes on for ever: whoever reads it must not.
std::string error_of_endless(const std::string& begin, const std::string& more) {
  bool began = false;
  TarReader reader([&]() -> Result<std::string_view> {
    const bool first = !began;
    began = true;
    return std::string_view(first ? begin : more);
  });
  for (;;) {
    auto entry = reader.next();
    if (!entry.ok() || !entry.value().has_value()) {
      return entry.ok() ? "it ended" : entry.error().message;
    }
  }
}

std::string header_of(char type, const char* octal_size) {
  return Tar().add("a", "", {.type = type, .claimed_size = octal_size}).bytes().substr(0, 512);
}

std::string without_end(const Tar& tar) {
  const std::string bytes = tar.bytes();
  return bytes.substr(0, bytes.size() - 1024);
}

// Bytes, so many times.
struct Part {
  std::string bytes;
  std::size_t times;
};

// What is wrong with an archive of these.
std::string error_of_parts(const std::vector<Part>& parts) {
  std::size_t at = 0;
  std::size_t given = 0;
  TarReader reader([&]() -> Result<std::string_view> {
    while (at < parts.size() && given == parts[at].times) {
      ++at;
      given = 0;
    }
    if (at == parts.size()) {
      return std::string_view();
    }
    ++given;
    return std::string_view(parts[at].bytes);
  });
  for (;;) {
    auto entry = reader.next();
    if (!entry.ok() || !entry.value().has_value()) {
      return entry.ok() ? "" : entry.error().message;
    }
  }
}

// A sparse file that is empty and has so many parts in the map in its contents, 38 bytes for each.
std::string sparse_with_map(std::size_t pieces) {
  std::string map = std::to_string(pieces) + "\n";
  for (std::size_t i = 0; i < 2 * pieces; ++i) {
    map += std::string(18, '0') + "\n";
  }
  map.resize((map.size() + 511) / 512 * 512);
  Tar tar;
  tar.pax("GNU.sparse.major", "1").pax("GNU.sparse.realsize", "0").file("s", map);
  return without_end(tar);
}

TEST(TarReader, HeadersWithoutContentsArePartOfNoFileToo) {
  for (const char type : {'g', 'A', 'V'}) {
    std::string headers;
    for (int i = 0; i < 1024; ++i) {
      headers += header_of(type, "00000000000");
    }
    EXPECT_THAT(error_of_parts({{headers, 256}}), HasSubstr("part of no file")) << type;
  }
  Tar honest;
  honest.add("g", "13 comment=x\n", {.type = 'g'}).file("a", "x");
  EXPECT_EQ(error_of_parts({{without_end(honest), 10'000}}), "");
}

TEST(TarReader, LargeExtendedHeadersArePartOfNoFile) {
  const std::string zeros(1 << 20, '\0');
  std::vector<Tar> tars(3);
  tars[0].add("l", zeros, {.type = 'L'}).file("a", "");
  tars[1].add("k", zeros, {.type = 'K'}).file("a", "");
  tars[2].pax("comment", std::string(1'000'000, 'x')).file("a", "");
  for (const Tar& tar : tars) {
    EXPECT_EQ(error_of_parts({{without_end(tar), 32}}), "");
    EXPECT_THAT(error_of_parts({{without_end(tar), 128}}), HasSubstr("part of no file"));
  }
}

TEST(TarReader, LargeMapsInContentsArePartOfNoFile) {
  const std::string sparse = sparse_with_map(1 << 16);
  EXPECT_EQ(error_of_parts({{sparse, 1}}), "");
  const std::string zeros(1 << 20, '\0');
  EXPECT_THAT(error_of_parts({{header_of('g', "00374000000"), 1}, {zeros, 63}, {sparse, 1}}),
              HasSubstr("part of no file"));
}

TEST(TarReader, NamesAndMapsOfOrdinaryEntriesAreFree) {
  // Contents of a header that leave nothing of what an archive may have.
  const std::vector<Part> all = {{header_of('g', "00377777000"), 1},
                                 {std::string(1 << 20, ' '), 63},
                                 {std::string((1 << 20) - 512, ' '), 1}};
  const auto after_all = [&all](const std::string& bytes) {
    std::vector<Part> parts = all;
    parts.push_back({bytes, 100});
    return error_of_parts(parts);
  };
  Tar ordinary;
  ordinary.add("l", std::string(2000, 'l') + '\0', {.type = 'L'});
  ordinary.add("k", std::string(2000, 'k') + '\0', {.type = 'K'});
  ordinary.pax("mtime", "1700000000.25").link("short", "x");
  EXPECT_EQ(after_all(without_end(ordinary)), "");
  EXPECT_EQ(after_all(sparse_with_map(100)), "");
  Tar large;
  large.add("l", std::string(8000, 'l') + '\0', {.type = 'L'}).file("short", "");
  EXPECT_THAT(after_all(without_end(large)), HasSubstr("part of no file"));
  EXPECT_THAT(after_all(sparse_with_map(300)), HasSubstr("part of no file"));
  EXPECT_THAT(after_all(header_of('g', "00000000000")), HasSubstr("part of no file"));
}

TEST(TarReader, WhatIsPartOfNoFileIsBounded) {
  const std::string zeros(1 << 20, '\0');
  for (const char type : {'g', 'A', 'V', 'D'}) {
    EXPECT_THAT(error_of_endless(header_of(type, "77777777777"), zeros),
                HasSubstr("part of no file"))
        << type;
  }
  std::string globals;
  std::string extras;
  for (int i = 0; i < 512; ++i) {
    globals += header_of('g', "00000001000") + std::string(512, ' ');
    extras += header_of('x', "00000000000");
  }
  EXPECT_THAT(error_of_endless(globals, globals), HasSubstr("part of no file"));
  EXPECT_THAT(error_of_endless(extras, extras), HasSubstr("too large"));
  std::string sparse = header_of('S', "00000000000");
  std::string more(512, '\0');
  more[504] = '\1';
  sparse[482] = '\1';
  unsigned sum = 0;
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    const char byte = i >= 148 && i < 156 ? ' ' : sparse[i];
    sum += static_cast<unsigned char>(byte);
  }
  std::snprintf(sparse.data() + 148, 8, "%06o", sum);
  EXPECT_THAT(error_of_endless(sparse, more), HasSubstr("part of no file"));
}

TEST(TarReader, DamageIsSaid) {
  Tar tar;
  tar.pax("path", "name").file("a", std::string(2000, 'x'));
  const std::string whole = tar.bytes();
  for (std::size_t size = 513; size + 1024 < whole.size(); size += 211) {
    EXPECT_NE(read_all_of(whole.substr(0, size)).error, "") << size;
  }
  EXPECT_EQ(read_all_of(whole.substr(0, whole.size() - 1024)).error, "") << "the end is left out";
  std::string changed = whole;
  changed[1024] ^= 1;
  EXPECT_THAT(read_all_of(changed).error, HasSubstr("no header where one has to be"));
  EXPECT_THAT(read_all_of(std::string(2000, 'x')).error, HasSubstr("no tar archive"));
  EXPECT_THAT(read_all_of("").error, HasSubstr("no tar archive"));
  EXPECT_EQ(read_all_of(std::string(1024, '\0')).error, "") << "an archive without entries";
  for (const char* record :
       {"path=x\n", "99 path=x\n", "9 path=x", "4 x\n", "0 path=x\n", "7 a=bcd\n"}) {
    EXPECT_NE(read_all_of(Tar().add("p", record, {.type = 'x'}).file("a", "").bytes()).error, "")
        << record;
  }
  EXPECT_THAT(read_all_of(Tar().pax("path", std::string("a\0b", 3)).file("a", "").bytes()).error,
              HasSubstr("NUL"));
}

}  // namespace
}  // namespace carrel::storage
