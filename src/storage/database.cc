#include "storage/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <utility>

#include "base/unique_fd.h"

namespace carrel::storage {

namespace {

constexpr int kBusyMs = 5000;

// SQLite tells some failures for want of room as plain I/O errors.
bool disk_is_full(sqlite3* connection) {
  const char* file = sqlite3_db_filename(connection, "main");
  struct statvfs space{};
  return file != nullptr && ::statvfs(file, &space) == 0 && space.f_bavail == 0;
}

Error database_error(sqlite3* connection, const char* what) {
  int code = connection != nullptr ? sqlite3_errcode(connection) : SQLITE_NOMEM;
  Error error{Code::kSystem,
              0,
              std::string(what) + ": " +
                  (connection != nullptr ? sqlite3_errmsg(connection) : "out of memory"),
              {}};
  if (code == SQLITE_FULL || (code == SQLITE_IOERR && disk_is_full(connection))) {
    error.code = Code::kResource;
    error.hint = "the disk is full";
  } else if (code == SQLITE_CONSTRAINT) {
    error.code = Code::kConflict;
  } else if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
    error.hint = "the state database is damaged: move it away";
  }
  return error;
}

// SQLite would let everybody read it. Its other files get the mode of this one.
void keep_private(const std::string& path) {
  UniqueFd made(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!made.valid()) {
    ::chmod(path.c_str(), 0600);
  }
}

}  // namespace

Result<Database> Database::open(const std::string& path) {
  keep_private(path);
  sqlite3* connection = nullptr;
  int code =
      sqlite3_open_v2(path.c_str(), &connection,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(connection);
  if (code != SQLITE_OK) {
    return database_error(connection, "open the state database");
  }
  sqlite3_busy_timeout(connection, kBusyMs);
  CARREL_TRY(
      database.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
                       "PRAGMA foreign_keys=ON;"));
  return database;
}

Database::Database(Database&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)) {}
Database& Database::operator=(Database&& other) noexcept {
  std::swap(connection_, other.connection_);
  return *this;
}
Database::~Database() { sqlite3_close(connection_); }

Status Database::execute(const char* sql) {
  if (sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return database_error(connection_, "write the state database");
  }
  return {};
}

Result<Database::Statement> Database::prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(connection_, sql, -1, &statement, nullptr) != SQLITE_OK) {
    return database_error(connection_, "read the state database");
  }
  return Statement(connection_, statement);
}

Database::Statement::Statement(Statement&& other) noexcept
    : connection_(other.connection_),
      statement_(std::exchange(other.statement_, nullptr)),
      next_(other.next_) {}
Database::Statement::~Statement() { sqlite3_finalize(statement_); }

Database::Statement& Database::Statement::bind(std::string_view text) {
  sqlite3_bind_text64(statement_, next_++, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}
Database::Statement& Database::Statement::bind(std::int64_t number) {
  sqlite3_bind_int64(statement_, next_++, number);
  return *this;
}
Database::Statement& Database::Statement::bind_null() {
  sqlite3_bind_null(statement_, next_++);
  return *this;
}

Result<bool> Database::Statement::step() {
  switch (sqlite3_step(statement_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return database_error(connection_, "use the state database");
  }
}

std::string Database::Statement::text(int column) const {
  const unsigned char* data = sqlite3_column_text(statement_, column);
  int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr
             ? std::string()
             : std::string(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
}
std::int64_t Database::Statement::number(int column) const {
  return sqlite3_column_int64(statement_, column);
}
bool Database::Statement::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

}  // namespace carrel::storage
