#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string_view>

#include "guest/file_channel.h"
#include "guest/file_place.h"
#include "protocol/files.h"

// What a file worker does, an operation at a time. Each returns what is told as kFileDone; an
// operation whose host is gone may return anything.
namespace carrel::guest {

struct FileWork {
  FileChannel& channel;
  const protocol::FileRequest& request;
  std::string_view workdir;
  Path path;  // the request's, from the root
  Path other;
  std::uint64_t notes = 0;  // what was left out, told or not
};

protocol::FileOutcome failed(int negative_errno, std::string_view path = {});
inline protocol::FileOutcome problem(protocol::FileProblem what, std::uint64_t value = 0) {
  protocol::FileOutcome outcome;
  outcome.problem = what;
  outcome.value = value;
  return outcome;
}

// Tells that something was left out of an operation that goes on. Only the first thousand are told.
void note(FileWork& work, const protocol::FileOutcome& outcome, std::string_view path);

// What stat knows as an entry; the target of a link is not in it.
protocol::FileEntry entry_of(const struct stat& info, std::string_view path);

// Contents and metadata (file_read.cc, file_write.cc).
protocol::FileOutcome read_file(FileWork& work);
protocol::FileOutcome stat_file(FileWork& work);
protocol::FileOutcome write_new_file(FileWork& work);
protocol::FileOutcome append_to_file(FileWork& work);
protocol::FileOutcome replace_in_file(FileWork& work);
protocol::FileOutcome change_mode(FileWork& work);
protocol::FileOutcome make_directory(FileWork& work);

// Sends `size` bytes of an open file from `offset` on, holes as holes. False when the host is gone;
// `sent` is less when the file has become shorter, and `error` is set when it cannot be read.
struct Contents {
  std::uint64_t sent = 0;
  int error = 0;
};
bool send_contents(FileChannel& channel, int fd, std::uint64_t offset, std::uint64_t size,
                   Contents& contents);

// Trees (file_list.cc, file_search.cc, file_pack.cc, file_unpack.cc, file_move.cc).
protocol::FileOutcome list_files(FileWork& work);
protocol::FileOutcome search_files(FileWork& work);
protocol::FileOutcome pack_tree(FileWork& work);
protocol::FileOutcome unpack_tree(FileWork& work);
protocol::FileOutcome move_files(FileWork& work);
protocol::FileOutcome copy_files(FileWork& work);
protocol::FileOutcome remove_files(FileWork& work);

// Changes (file_watch.cc).
protocol::FileOutcome watch_files(FileWork& work);

}  // namespace carrel::guest
