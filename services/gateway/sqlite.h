// SQLite's C interface with statuses: one connection, its prepared statements.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>

struct sqlite3;
struct sqlite3_stmt;

namespace quench::gateway {

class Sqlite {
 public:
  // One run of a statement; its destruction makes the statement ready for the next run.
  class Query {
   public:
    ~Query();
    Query(const Query&) = delete;
    Query& operator=(const Query&) = delete;
    // Parameters in the order of their `?`. Blobs must outlive the query.
    Query& Int(int64_t value);
    Query& Real(double value);
    Query& Text(const std::string& value);
    Query& TextOrNull(const std::string& value);  // "" is null
    Query& Blob(const std::string& value);
    // Whether there is a row; then IntAt, RealAt and BytesAt read its columns, counted from 0.
    absl::StatusOr<bool> Next();
    // Runs a statement that gives no rows.
    absl::Status Run();
    int64_t IntAt(int column) const;
    double RealAt(int column) const;
    std::string BytesAt(int column) const;

   private:
    friend class Sqlite;
    Query(Sqlite* db, sqlite3_stmt* statement) : db_(db), statement_(statement) {}
    Sqlite* const db_;
    sqlite3_stmt* const statement_;
    int bound_ = 0;
  };

  static absl::StatusOr<std::unique_ptr<Sqlite>> Open(const std::filesystem::path& path);
  ~Sqlite();
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;

  // `sql` is a string literal, prepared once; only one query of it exists at a time. Errors in its
  // text are defects.
  Query Prepared(const char* sql);
  absl::Status Execute(const std::string& statements);
  // Rows that the last statement changed.
  int64_t Changes() const;
  // Whether a transaction is open: SQLite ends one by itself if the disk is full.
  bool InTransaction() const;

 private:
  explicit Sqlite(sqlite3* db) : db_(db) {}
  absl::Status ErrorOf(int code) const;
  sqlite3* const db_;
  std::unordered_map<const char*, sqlite3_stmt*> statements_;
};

}  // namespace quench::gateway
