#include "storage/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace carrel::storage {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kDamaged[] = "the state database is damaged: move it away";

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
  } else if (code == SQLITE_BUSY || code == SQLITE_PROTOCOL) {
    error.code = Code::kTimeout;
    error.hint = "others are writing to it; try again in a moment";
  } else if (code == SQLITE_CONSTRAINT) {
    error.code = Code::kConflict;
  } else if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
    error.hint = kDamaged;
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

// Changes with every write that anybody finishes.
struct Stamp {
  timespec log{};
  timespec file{};

  friend bool operator==(const Stamp& a, const Stamp& b) {
    return a.log.tv_sec == b.log.tv_sec && a.log.tv_nsec == b.log.tv_nsec &&
           a.file.tv_sec == b.file.tv_sec && a.file.tv_nsec == b.file.tv_nsec;
  }
};

timespec changed_at(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mtim : timespec{};
}

}  // namespace

// One call's wait for its turn. SQLite has no queue: whoever asks at the right moment is next, so
// everybody asks often and at moments of his own.
class Database::Queue {
 public:
  Queue(std::string path, Patience patience)
      : path_(std::move(path)),
        patience_(patience),
        random_(static_cast<unsigned>(::getpid()) ^
                static_cast<unsigned>(steady_clock::now().time_since_epoch().count())) {}

  void begin() {
    started_ = steady_clock::now();
    progressed_ = started_;
    stamp_ = look();
  }

  // Waits a moment; false when the patience is at its end.
  bool wait() {
    const auto now = steady_clock::now();
    if (const Stamp stamp = look(); !(stamp == stamp_)) {
      stamp_ = stamp;
      progressed_ = now;
    }
    if (now - started_ >= patience_.in_all || now - progressed_ >= patience_.without_progress) {
      return false;
    }
    constexpr unsigned kShortestUs = 500;
    constexpr unsigned kLongestUs = 20'000;
    ::usleep(std::uniform_int_distribution<unsigned>(kShortestUs, kLongestUs)(random_));
    return true;
  }

  // As SQLite calls it; `before` is how often it did so in this wait.
  static int on_busy(void* self, int before) {
    auto* queue = static_cast<Queue*>(self);
    if (before == 0) {
      queue->begin();
    }
    return queue->wait() ? 1 : 0;
  }

 private:
  [[nodiscard]] Stamp look() const { return {changed_at(path_ + "-wal"), changed_at(path_)}; }

  std::string path_;
  Patience patience_;
  std::minstd_rand random_;
  steady_clock::time_point started_;
  steady_clock::time_point progressed_;
  Stamp stamp_;
};

struct Database::Connection {
  Connection(const std::string& path, Patience patience) : queue(path, patience) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    for (sqlite3_stmt* statement : ready) {
      sqlite3_finalize(statement);
    }
    sqlite3_close(handle);
  }

  // One with this text that nobody uses now, or null.
  sqlite3_stmt* take(std::string_view sql) {
    const auto found = std::find_if(ready.begin(), ready.end(), [&](sqlite3_stmt* statement) {
      return sql == sqlite3_sql(statement);
    });
    if (found == ready.end()) {
      return nullptr;
    }
    sqlite3_stmt* statement = *found;
    ready.erase(found);
    return statement;
  }
  void give_back(sqlite3_stmt* statement) {
    constexpr std::size_t kMostReady = 24;
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    if (ready.size() == kMostReady) {
      sqlite3_finalize(ready.front());
      ready.erase(ready.begin());
    }
    ready.push_back(statement);
  }

  // Brings the connection to what whoever writes next wants. SQLite reads such a statement anew
  // each time, so it stays as it is until somebody wants something else.
  // CRITICAL: a write that is to last is not made before this says so.
  Status settle() {
    if (now == wanted) {
      return {};
    }
    const bool light = wanted == Lasting::kUnsynced;
    if (sqlite3_get_autocommit(handle) == 0 && light) {
      return {};  // what is on its way lasts
    }
    const char* const sql = light ? "PRAGMA synchronous=NORMAL" : "PRAGMA synchronous=FULL";
    if (sqlite3_exec(handle, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
      return database_error(handle, "write the state database");
    }
    now = wanted;
    return {};
  }

  sqlite3* handle = nullptr;
  Lasting wanted = Lasting::kSynced;
  Lasting now = Lasting::kSynced;
  std::vector<sqlite3_stmt*> ready;
  Queue queue;  // what SQLite asks whether to wait on
};

Result<Database> Database::open(const std::string& path) { return open(path, Patience{}); }

Result<Database> Database::open(const std::string& path, Patience patience) {
  keep_private(path);
  Database database(std::make_shared<Connection>(path, patience));
  const int code =
      sqlite3_open_v2(path.c_str(), &database.connection_->handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  sqlite3* connection = database.connection_->handle;
  if (code != SQLITE_OK) {
    return database_error(connection, "open the state database");
  }
  sqlite3_busy_handler(connection, Queue::on_busy, &database.connection_->queue);
  CARREL_TRY(database.use_write_ahead_log());
  // The log stays when the last one closes, so that the next one has not to make it anew, and is
  // short, so that it is read quickly. Each of its pages is 4 KiB.
  sqlite3_db_config(connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_wal_autocheckpoint(connection, 100);
  CARREL_TRY(database.execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"));
  return database;
}

// SQLite does not ask whether to wait when several make the first log at once.
Status Database::use_write_ahead_log() {
  Queue turn = connection_->queue;
  turn.begin();
  Status done = execute("PRAGMA journal_mode=WAL;");
  while (!done.ok() && done.error().code == Code::kTimeout && turn.wait()) {
    done = execute("PRAGMA journal_mode=WAL;");
  }
  return done;
}

Status Database::execute(const char* sql) {
  sqlite3* connection = connection_->handle;
  CARREL_TRY(connection_->settle());
  if (sqlite3_exec(connection, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return database_error(connection, "write the state database");
  }
  return {};
}

// The next commit is written over it in the log. This one changes nothing else.
Status Database::drop_unseen_commit() {
  CARREL_TRY(execute("BEGIN IMMEDIATE"));
  const auto version = [&]() -> Result<std::int64_t> {
    CARREL_ASSIGN(auto statement, prepare("PRAGMA user_version"));
    CARREL_TRY(statement.step());
    return statement.number(0);
  };
  const auto write = [&]() -> Status {
    CARREL_ASSIGN(const std::int64_t same, version());
    CARREL_TRY(execute(("PRAGMA user_version = " + std::to_string(same)).c_str()));
    return execute("COMMIT");
  };
  Status written = write();
  if (!written.ok()) {
    (void)execute("ROLLBACK");
  }
  return written;
}

Database::Lightly::Lightly(Database& database, Lasting lasting)
    : connection_(*database.connection_), before_(connection_.wanted) {
  if (lasting == Lasting::kUnsynced) {
    connection_.wanted = Lasting::kUnsynced;
  }
}

Database::Lightly::~Lightly() { connection_.wanted = before_; }

Result<Database::Statement> Database::prepare(const char* sql) {
  sqlite3_stmt* statement = connection_->take(sql);
  if (statement != nullptr) {
    return Statement(connection_, statement);
  }
  sqlite3* connection = connection_->handle;
  if (sqlite3_prepare_v2(connection, sql, -1, &statement, nullptr) != SQLITE_OK) {
    return database_error(connection, "read the state database");
  }
  return Statement(connection_, statement);
}

Database::Statement::Statement(Statement&& other) noexcept
    : connection_(std::move(other.connection_)),
      statement_(std::exchange(other.statement_, nullptr)),
      next_(other.next_) {}
Database::Statement::~Statement() {
  if (statement_ != nullptr) {
    connection_->give_back(statement_);
  }
}

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
  if (sqlite3_stmt_readonly(statement_) == 0) {
    CARREL_TRY(connection_->settle());
  }
  switch (sqlite3_step(statement_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return database_error(connection_->handle, "use the state database");
  }
}

bool is_damage(const Error& error) { return error.hint == kDamaged; }

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
