#include "services/cli/colour.h"

#include <fmt/color.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace quench::cli {
namespace {

std::string_view Environment(const char* name) {
  const char* found = std::getenv(name);
  return found == nullptr ? "" : found;
}

std::string Styled(const std::string& text, const fmt::text_style& style, std::FILE* stream) {
  return Coloured(stream) ? fmt::format(style, "{}", text) : text;
}

void PrintLine(const std::string& kind, fmt::terminal_color colour, const std::string& message) {
  fmt::print(stderr, "quench: {} {}\n",
             Styled(kind + ":", fmt::emphasis::bold | fmt::fg(colour), stderr), message);
}

}  // namespace

bool Coloured(std::FILE* stream) {
  if (!Environment("NO_COLOR").empty()) return false;
  const std::string_view force = Environment("CLICOLOR_FORCE");
  if (!force.empty() && force != "0") return true;
  return Environment("TERM") != "dumb" &&
         isatty(stream == stderr ? STDERR_FILENO : STDOUT_FILENO) == 1;
}

std::string Heading(const std::string& text, std::FILE* stream) {
  return Styled(text, fmt::emphasis::bold | fmt::fg(fmt::terminal_color::green), stream);
}

std::string Name(const std::string& text, std::FILE* stream) {
  return Styled(text, fmt::emphasis::bold, stream);
}

void PrintError(const std::string& message) {
  PrintLine("error", fmt::terminal_color::red, message);
}

void PrintWarning(const std::string& message) {
  PrintLine("warning", fmt::terminal_color::yellow, message);
}

void PrintNote(const std::string& message) {
  PrintLine("note", fmt::terminal_color::cyan, message);
}

}  // namespace quench::cli
