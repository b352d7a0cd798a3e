#include "services/analyser/edit_script.h"

#include <algorithm>
#include <array>

#include "common/base/status.h"
#include "common/ir/text_reader.h"
#include "common/ir/verify.h"

namespace quench::analyser {
namespace {

using text::Token;
using text::TokenKind;

class ScriptParser {
 public:
  explicit ScriptParser(const std::string& text) : reader_(text) {}

  absl::StatusOr<std::vector<EditStatement>> Parse() {
    QUENCH_RETURN_IF_ERROR(reader_.Advance());
    std::vector<EditStatement> statements;
    while (now().kind != TokenKind::kEnd) {
      QUENCH_ASSIGN_OR_RETURN(EditStatement statement, ParseStatement(0));
      statements.push_back(std::move(statement));
    }
    return statements;
  }

 private:
  using Method = absl::Status (ScriptParser::*)(EditStatement&, int depth);
  struct Keyword {
    const char* word;
    EditKind kind;
    Method parse;
  };
  static const std::array<Keyword, 11> kKeywords;

  const Token& now() const { return reader_.now(); }

  absl::StatusOr<EditStatement> ParseStatement(int depth) {
    const auto keyword = std::find_if(kKeywords.begin(), kKeywords.end(),
                                      [&](const Keyword& each) { return now().IsName(each.word); });
    if (keyword == kKeywords.end()) {
      std::string words;
      for (const Keyword& each : kKeywords)
        words += (words.empty() ? "" : ", ") + std::string(each.word);
      return reader_.Error("a statement begins with one of " + words);
    }
    EditStatement statement;
    statement.kind = keyword->kind;
    statement.begin = now().begin;
    QUENCH_RETURN_IF_ERROR(Advance());
    QUENCH_RETURN_IF_ERROR((this->*keyword->parse)(statement, depth));
    statement.end = end_;
    return statement;
  }

  absl::Status Advance() {
    end_ = now().end;
    return reader_.Advance();
  }

  absl::Status NodeNames(EditStatement& statement, int /*depth*/) { return Names(statement.nodes); }
  absl::Status Names(std::vector<std::string>& names) {
    while (true) {
      end_ = now().end;
      QUENCH_ASSIGN_OR_RETURN(std::string name, reader_.NameOrString());
      names.push_back(std::move(name));
      if (!now().Is(",")) return absl::OkStatus();
      QUENCH_RETURN_IF_ERROR(Advance());
    }
  }
  absl::Status ValueName(std::string& name) {
    end_ = now().end;
    QUENCH_ASSIGN_OR_RETURN(name, reader_.ValueName());
    return absl::OkStatus();
  }
  absl::Status Word(const char* word) {
    end_ = now().end;
    return reader_.Keyword(word);
  }

  // Over `{...}` or another pair of brackets, and what is in it.
  absl::Status Group(const char* open) {
    const Token at = now();
    if (!at.Is(open)) return reader_.Error(fmt::format("`{}` was expected", open));
    int depth = 0;
    do {
      if (now().kind == TokenKind::kEnd) return reader_.ErrorAt(at, "the bracket is never closed");
      if (now().Is("{") || now().Is("[") || now().Is("(")) ++depth;
      if (now().Is("}") || now().Is("]") || now().Is(")")) --depth;
      QUENCH_RETURN_IF_ERROR(Advance());
    } while (depth > 0);
    return absl::OkStatus();
  }
  absl::Status Block(EditStatement& statement, int /*depth*/) {
    statement.part = now().begin;
    return Group("{");
  }
  // `: f32[2]`; the colon is there.
  absl::Status TypeOf(EditStatement& statement) {
    QUENCH_RETURN_IF_ERROR(Advance());
    statement.part = now().begin;
    if (now().kind == TokenKind::kName) QUENCH_RETURN_IF_ERROR(Advance());
    return Group("[");
  }

  absl::Status Replace(EditStatement& statement, int depth) {
    QUENCH_RETURN_IF_ERROR(NodeNames(statement, depth));
    return Block(statement, depth);
  }
  absl::Status Insert(EditStatement& statement, int depth) {
    QUENCH_RETURN_IF_ERROR(ValueName(statement.value));
    if (now().IsName("for")) {
      QUENCH_RETURN_IF_ERROR(Advance());
      QUENCH_RETURN_IF_ERROR(NodeNames(statement, depth));
    }
    return Block(statement, depth);
  }
  absl::Status Remove(EditStatement& statement, int /*depth*/) {
    statement.nodes.resize(1);
    end_ = now().end;
    QUENCH_ASSIGN_OR_RETURN(statement.nodes[0], reader_.NameOrString());
    if (!now().IsName("with")) return absl::OkStatus();
    QUENCH_RETURN_IF_ERROR(Advance());
    return ValueName(statement.to);
  }
  absl::Status Rename(EditStatement& statement, int /*depth*/) {
    if (now().kind == TokenKind::kValue) {
      statement.kind = EditKind::kRenameValue;
      QUENCH_RETURN_IF_ERROR(ValueName(statement.value));
      QUENCH_RETURN_IF_ERROR(Word("to"));
      return ValueName(statement.to);
    }
    statement.nodes.resize(1);
    QUENCH_ASSIGN_OR_RETURN(statement.nodes[0], reader_.NameOrString());
    QUENCH_RETURN_IF_ERROR(Word("to"));
    end_ = now().end;
    QUENCH_ASSIGN_OR_RETURN(statement.to, reader_.NameOrString());
    return absl::OkStatus();
  }
  absl::Status Unset(EditStatement& statement, int /*depth*/) {
    statement.nodes.resize(1);
    QUENCH_ASSIGN_OR_RETURN(statement.nodes[0], reader_.NameOrString());
    return Names(statement.names);
  }
  absl::Status Set(EditStatement& statement, int depth) {
    statement.nodes.resize(1);
    QUENCH_ASSIGN_OR_RETURN(statement.nodes[0], reader_.NameOrString());
    return Block(statement, depth);
  }
  absl::Status Constant(EditStatement& statement, int /*depth*/) {
    QUENCH_RETURN_IF_ERROR(ValueName(statement.value));
    if (now().Is(":")) {
      QUENCH_RETURN_IF_ERROR(TypeOf(statement));
      QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
      return Group("[");
    }
    QUENCH_RETURN_IF_ERROR(reader_.Punct("="));
    QUENCH_RETURN_IF_ERROR(Word("file"));
    end_ = now().end;
    const Token at = now();
    QUENCH_ASSIGN_OR_RETURN(statement.file, reader_.String());
    if (statement.file.empty()) return reader_.ErrorAt(at, "a file has a name");
    if (now().kind != TokenKind::kString) return absl::OkStatus();
    end_ = now().end;
    QUENCH_ASSIGN_OR_RETURN(statement.array, reader_.String());
    return absl::OkStatus();
  }
  absl::Status Input(EditStatement& statement, int /*depth*/) {
    QUENCH_RETURN_IF_ERROR(ValueName(statement.value));
    return now().Is(":") ? TypeOf(statement) : absl::OkStatus();
  }
  absl::Status Outputs(EditStatement& statement, int /*depth*/) {
    while (true) {
      statement.names.emplace_back();
      QUENCH_RETURN_IF_ERROR(ValueName(statement.names.back()));
      if (!now().Is(",")) return absl::OkStatus();
      QUENCH_RETURN_IF_ERROR(Advance());
    }
  }
  absl::Status In(EditStatement& statement, int depth) {
    if (depth == kMaxBodyNesting)
      return reader_.Error(fmt::format("bodies nest deeper than {}", kMaxBodyNesting));
    statement.nodes.resize(1);
    QUENCH_ASSIGN_OR_RETURN(statement.nodes[0], reader_.NameOrString());
    QUENCH_ASSIGN_OR_RETURN(statement.to, reader_.NameOrString());
    const Token open = now();
    QUENCH_RETURN_IF_ERROR(reader_.Punct("{"));
    while (!now().Is("}")) {
      if (now().kind == TokenKind::kEnd)
        return reader_.ErrorAt(open, "the bracket is never closed");
      QUENCH_ASSIGN_OR_RETURN(EditStatement inner, ParseStatement(depth + 1));
      statement.body.push_back(std::move(inner));
    }
    return Advance();
  }

  TextReader reader_;
  size_t end_ = 0;  // of the token before `now`
};

const std::array<ScriptParser::Keyword, 11> ScriptParser::kKeywords = {{
    {"replace", EditKind::kReplace, &ScriptParser::Replace},
    {"insert", EditKind::kInsert, &ScriptParser::Insert},
    {"add", EditKind::kAdd, &ScriptParser::Block},
    {"remove", EditKind::kRemove, &ScriptParser::Remove},
    {"rename", EditKind::kRenameNode, &ScriptParser::Rename},
    {"set", EditKind::kSet, &ScriptParser::Set},
    {"unset", EditKind::kUnset, &ScriptParser::Unset},
    {"constant", EditKind::kConstant, &ScriptParser::Constant},
    {"input", EditKind::kInput, &ScriptParser::Input},
    {"outputs", EditKind::kOutputs, &ScriptParser::Outputs},
    {"in", EditKind::kIn, &ScriptParser::In},
}};

void AddFiles(const std::vector<EditStatement>& statements,
              std::set<std::pair<std::string, std::string>>& files) {
  for (const EditStatement& statement : statements) {
    if (!statement.file.empty()) files.emplace(statement.file, statement.array);
    AddFiles(statement.body, files);
  }
}

}  // namespace

absl::StatusOr<EditScript> ParseEditScript(std::string text, std::string name) {
  if (text.size() > kMostEditBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{} has {} bytes, at most {} are read", name, text.size(), kMostEditBytes));
  }
  EditScript script{std::move(name), std::move(text), {}};
  absl::StatusOr<std::vector<EditStatement>> statements = ScriptParser(script.text).Parse();
  if (!statements.ok()) return ErrorIn(script, statements.status());
  script.statements = *std::move(statements);
  return script;
}

absl::Status ErrorIn(const EditScript& script, const absl::Status& status) {
  return absl::Status(status.code(), fmt::format("{}:{}", script.name, MessageOf(status)));
}

std::set<std::pair<std::string, std::string>> FilesOf(const EditScript& script) {
  std::set<std::pair<std::string, std::string>> files;
  AddFiles(script.statements, files);
  return files;
}

}  // namespace quench::analyser
