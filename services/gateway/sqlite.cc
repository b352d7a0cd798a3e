#include "services/gateway/sqlite.h"

#include <sqlite3.h>

#include <cerrno>

#include "common/base/status.h"

namespace quench::gateway {

absl::StatusOr<std::unique_ptr<Sqlite>> Sqlite::Open(const std::filesystem::path& path) {
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Sqlite> sqlite(new Sqlite(db));
  if (code != SQLITE_OK) return Annotate(sqlite->ErrorOf(code), "`" + path.string() + "`");
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, 10'000);
  return sqlite;
}

Sqlite::~Sqlite() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close_v2(db_);
}

absl::Status Sqlite::ErrorOf(int code) const {
  const std::string text = fmt::format("the job store says: {}", sqlite3_errmsg(db_));
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_IOERR:
      return sqlite3_system_errno(db_) == ENOSPC ? absl::ResourceExhaustedError(text)
                                                 : absl::UnavailableError(text);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(text);
    case SQLITE_BUSY:
    case SQLITE_CANTOPEN:
      return absl::UnavailableError(text);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::PermissionDeniedError(text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    default:
      return absl::InternalError(text);
  }
}

Sqlite::Query Sqlite::Prepared(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int code =
        sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    // Null is told when it is run: the file may be damaged or gone.
    if (code != SQLITE_OK) statement = nullptr;
  }
  return Query(this, statement);
}

absl::Status Sqlite::Execute(const std::string& statements) {
  const int code = sqlite3_exec(db_, statements.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(code);
}

int64_t Sqlite::Changes() const { return sqlite3_changes64(db_); }
bool Sqlite::InTransaction() const { return sqlite3_get_autocommit(db_) == 0; }

Sqlite::Query::~Query() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Sqlite::Query& Sqlite::Query::Int(int64_t value) {
  sqlite3_bind_int64(statement_, ++bound_, value);
  return *this;
}

Sqlite::Query& Sqlite::Query::Real(double value) {
  sqlite3_bind_double(statement_, ++bound_, value);
  return *this;
}

Sqlite::Query& Sqlite::Query::Text(const std::string& value) {
  sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
  return *this;
}

Sqlite::Query& Sqlite::Query::TextOrNull(const std::string& value) {
  if (!value.empty()) return Text(value);
  sqlite3_bind_null(statement_, ++bound_);
  return *this;
}

Sqlite::Query& Sqlite::Query::Blob(const std::string& value) {
  sqlite3_bind_blob64(statement_, ++bound_, value.data(), value.size(), SQLITE_STATIC);
  return *this;
}

absl::StatusOr<bool> Sqlite::Query::Next() {
  if (statement_ == nullptr) return db_->ErrorOf(sqlite3_extended_errcode(db_->db_));
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return db_->ErrorOf(code);
}

absl::Status Sqlite::Query::Run() { return Next().status(); }

int64_t Sqlite::Query::IntAt(int column) const { return sqlite3_column_int64(statement_, column); }

double Sqlite::Query::RealAt(int column) const { return sqlite3_column_double(statement_, column); }

std::string Sqlite::Query::BytesAt(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? "" : std::string(static_cast<const char*>(bytes), size);
}

}  // namespace quench::gateway
