#include "backends/microvm/kernel_image.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>

#include "backends/microvm/boot_files.h"
#include "base/files.h"

namespace carrel::microvm {
namespace {

void put_number(std::string& bytes, std::size_t at, std::uint32_t number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

std::string number(std::uint32_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// As much of a program as is looked at, and something that can be compressed.
std::string program() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident,
              "\x7f"
              "ELF\2\1\1",
              7);
  header.e_type = ET_EXEC;
  header.e_machine = EM_X86_64;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
         std::string(3000, 'a') + "the end";
}

std::string image_of(const std::string& packed) {
  std::string image(0x400 + 16, '\0');  // one sector of set-up, and code before the payload
  image[0x1f1] = 1;
  image.replace(0x202, 4, "HdrS");
  put_number(image, 0x206, 0x020f);
  put_number(image, 0x248, 16);
  put_number(image, 0x24c, static_cast<std::uint32_t>(packed.size()));
  return image + packed + "what comes after it";
}

std::string gzip(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;  // whose last four bytes are the size
}

std::string zstd(const std::string& text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out + number(static_cast<std::uint32_t>(text.size()));
}

// What program() is in LZ4, by hand: 65 bytes as they are, the last of them 2999 times more, and
// the end, in a piece of its own.
std::string lz4(const std::string& text) {
  const std::size_t literal = sizeof(Elf64_Ehdr) + 1;
  std::string first = "\xff";
  first += static_cast<char>(literal - 15);
  first += text.substr(0, literal);
  first += std::string("\1\0", 2);  // from one byte before
  std::size_t more = 2999 - 4 - 15;
  for (; more >= 255; more -= 255) {
    first += '\xff';
  }
  first += static_cast<char>(more);
  const std::string second = "\x70the end";
  return "\x02\x21\x4c\x18" + number(static_cast<std::uint32_t>(first.size())) + first +
         number(static_cast<std::uint32_t>(second.size())) + second +
         number(static_cast<std::uint32_t>(text.size()));
}

TEST(KernelImageTest, AProgramIsTakenOutHoweverItIsCompressed) {
  for (const std::string& packed : {gzip(program()), zstd(program()), lz4(program())}) {
    const auto unpacked = unpack_kernel(image_of(packed));
    ASSERT_TRUE(unpacked.ok()) << unpacked.error().to_string();
    EXPECT_EQ(unpacked.value(), program());
  }
}

TEST(KernelImageTest, WhatIsDamagedIsRefused) {
  for (const std::string& packed : {gzip(program()), zstd(program()), lz4(program())}) {
    // Another size than the one that it says.
    std::string longer = packed;
    put_number(longer, longer.size() - 4, static_cast<std::uint32_t>(program().size() + 1));
    EXPECT_FALSE(unpack_kernel(image_of(longer)).ok());
    std::string shorter = packed;
    put_number(shorter, shorter.size() - 4, static_cast<std::uint32_t>(program().size() - 1));
    EXPECT_FALSE(unpack_kernel(image_of(shorter)).ok());
    // Cut anywhere.
    for (std::size_t size = 0; size < packed.size() - 4; ++size) {
      EXPECT_FALSE(
          unpack_kernel(image_of(packed.substr(0, size) + packed.substr(packed.size() - 4))).ok())
          << size;
    }
  }
  EXPECT_FALSE(unpack_kernel({}).ok());
  EXPECT_FALSE(unpack_kernel(image_of(lz4(program())).substr(0, 0x430)).ok());
  std::string beyond = image_of(lz4(program()));
  put_number(beyond, 0x248, 0xfffffff0);
  EXPECT_FALSE(unpack_kernel(beyond).ok());
}

// Nothing is read or written outside: a sanitizer watches.
TEST(KernelImageTest, ChangedBytesDoNoHarm) {
  std::uint32_t state = 39;
  const auto random = [&state] {
    state = state * 1664525U + 1013904223U;
    return state >> 8U;
  };
  const std::string packed = lz4(program());
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = packed;
    for (int j = 0; j < 3; ++j) {
      changed[random() % (changed.size() - 4)] = static_cast<char>(random());
    }
    const auto unpacked = unpack_kernel(image_of(changed));
    EXPECT_TRUE(!unpacked.ok() || unpacked.value().size() < 256U << 20);
  }
}

TEST(KernelImageTest, WhatIsCompressedOtherwiseIsRefusedWithWhatToDo) {
  const auto refused =
      unpack_kernel(image_of(std::string("\xfd"
                                         "7zXZ\0...........",
                                         16)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().hint.find("CARREL_VM_KERNEL"), std::string::npos);
}

TEST(KernelImageTest, WhatIsNoProgramIsRefused) {
  EXPECT_FALSE(unpack_kernel(image_of(gzip(std::string(5000, 'x')))).ok());
  std::string other = program();
  other[18] = static_cast<char>(EM_AARCH64);
  EXPECT_FALSE(is_kernel_program(other));
  EXPECT_FALSE(unpack_kernel(image_of(zstd(other))).ok());
}

// The kernel that machines have by default.
TEST(KernelImageTest, DebiansKernelHoldsAProgramThatAVmmCanLoad) {
  const auto kernel = find_kernel({});
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const auto image = read_file_at(AT_FDCWD, kernel.value().path, kLargestKernel);
  ASSERT_TRUE(image.ok());
  EXPECT_FALSE(is_kernel_program(image.value()));
  const auto unpacked = unpack_kernel(image.value());
  ASSERT_TRUE(unpacked.ok()) << unpacked.error().to_string();
  const std::string& file = unpacked.value();
  EXPECT_NE(file.find("Linux version " + kernel.value().release), std::string::npos);
  Elf64_Ehdr header{};
  std::memcpy(&header, file.data(), sizeof header);
  EXPECT_EQ(header.e_type, ET_EXEC);
  EXPECT_EQ(header.e_machine, EM_X86_64);
  ASSERT_EQ(header.e_phentsize, sizeof(Elf64_Phdr));
  ASSERT_LE(header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr), file.size());
  bool entered = false;
  bool direct = false;  // the way in that needs no boot protocol (PVH): a note of Xen's, 18
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    std::memcpy(&part, file.data() + header.e_phoff + i * sizeof part, sizeof part);
    ASSERT_LE(part.p_offset + part.p_filesz, file.size());
    entered = entered || (part.p_type == PT_LOAD && header.e_entry >= part.p_paddr &&
                          header.e_entry < part.p_paddr + part.p_memsz);
    const std::string_view notes = std::string_view(file).substr(part.p_offset, part.p_filesz);
    direct = direct || (part.p_type == PT_NOTE &&
                        notes.find(number(18) + std::string("Xen\0", 4)) != std::string_view::npos);
  }
  EXPECT_TRUE(entered);
  EXPECT_TRUE(direct);
}

}  // namespace
}  // namespace carrel::microvm
