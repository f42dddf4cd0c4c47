#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace carrel::guest {

// A path as a C string. Unlike Text it touches only the bytes that it needs.
class Name {
 public:
  Name() { data_[0] = '\0'; }
  explicit Name(std::string_view text) { set(text); }
  void set(std::string_view text) {
    size_ = text.size() < sizeof data_ ? text.size() : sizeof data_ - 1;
    memcpy(data_, text.data(), size_);
    data_[size_] = '\0';
  }
  [[nodiscard]] const char* c_str() const { return data_; }
  [[nodiscard]] std::string_view view() const { return {data_, size_}; }

 private:
  char data_[4096];
  std::size_t size_ = 0;
};

// A root that is being built, and one path in it at a time. No link in it is ever followed: an
// image can hold links to anywhere. Calls return a value or a negative errno.
class Tree {
 public:
  // Takes over `root`, a descriptor of the directory at the top.
  void begin(int root);
  // Closes everything.
  void end();
  [[nodiscard]] int root() const { return root_; }

  // Chooses the path that the other calls are about, relative to the root.
  void select(std::string_view path) { path_.set(path); }

  // Makes a directory, or keeps the one that is there.
  int make_directory(mode_t mode);
  // These take the place of whatever had the name. make_file returns it open for writing.
  int make_file(mode_t mode);
  int make_empty_file(mode_t mode);
  int make_link(const char* target);

  int look(struct stat& info);
  // A detached copy of what is mounted there.
  int clone();
  // Mounts `mount` there. It stays open.
  int put(int mount);

 private:
  int open_parent();
  void forget_parent();
  template <typename Make>
  int make_anew(Make make);

  Name path_;
  Name parent_path_;
  const char* leaf_ = nullptr;
  int root_ = -1;
  int parent_ = -1;  // the directory `parent_path_`, or -1
};

}  // namespace carrel::guest
