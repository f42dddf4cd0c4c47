#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace carrel::storage {

// A small wrapper of SQLite's C interface. One connection for one thread; every write is on disk
// when its call returns, unless whoever writes says otherwise (Lightly).
class Database {
 public:
  // How long a call waits for the writes of others, after which it is kTimeout. As long as they
  // get on with theirs there are only many of them, and the wait goes on for up to `in_all`, which
  // is less than a caller waits for the keeper.
  struct Patience {
    std::chrono::milliseconds without_progress{10'000};
    std::chrono::milliseconds in_all{50'000};
  };
  static Result<Database> open(const std::string& path);
  static Result<Database> open(const std::string& path, Patience patience);
  Database(Database&&) noexcept = default;
  Database& operator=(Database&&) noexcept = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database() = default;

  // The same connection once more: opening another reads the log and the schema again.
  [[nodiscard]] Database share() const { return Database(connection_); }

  // One or more statements without parameters or results.
  Status execute(const char* sql);

  // A writer that is killed while the disk takes its commit leaves one that nobody sees, as long as
  // others have the database open, and that is there when the log is read anew. After this call
  // such a commit never appears. For those who remove what has no row.
  Status drop_unseen_commit();

  struct Connection;
  // While there is one with kUnsynced, a write is seen by everybody when its call returns, and may
  // be lost when the host goes down.
  class Lightly {
   public:
    Lightly(Database& database, Lasting lasting);
    Lightly(const Lightly&) = delete;
    Lightly& operator=(const Lightly&) = delete;
    ~Lightly();

   private:
    Connection& connection_;
    Lasting before_;
  };

  class Statement {
   public:
    Statement(Statement&& other) noexcept;
    Statement& operator=(Statement&&) = delete;
    Statement(const Statement&) = delete;
    Statement& operator=(const Statement&) = delete;
    ~Statement();

    Statement& bind(std::string_view text);
    Statement& bind(std::int64_t number);
    Statement& bind_null();

    // Runs to the next row: true when there is one.
    Result<bool> step();
    [[nodiscard]] std::string text(int column) const;
    [[nodiscard]] std::int64_t number(int column) const;
    [[nodiscard]] bool is_null(int column) const;

   private:
    friend class Database;
    Statement(std::shared_ptr<Connection> connection, sqlite3_stmt* statement)
        : connection_(std::move(connection)), statement_(statement) {}
    std::shared_ptr<Connection> connection_;
    sqlite3_stmt* statement_;
    int next_ = 1;
  };
  // To read the text of a statement takes longer than most statements take, so those that were
  // read are kept for the next time.
  Result<Statement> prepare(const char* sql);

 private:
  class Queue;
  explicit Database(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  Status use_write_ahead_log();

  std::shared_ptr<Connection> connection_;
};

// Whether an error of a database says that its file is none, or a damaged one.
bool is_damage(const Error& error);

}  // namespace carrel::storage
