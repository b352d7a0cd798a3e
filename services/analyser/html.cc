#include "services/analyser/html.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_replace.h>
#include <fmt/format.h>

#include <string_view>

#include "common/base/printable.h"
#include "common/blobs/digest.h"

namespace quench::analyser {
namespace {

constexpr std::string_view kPageStyle =
#include "embedded/page.css.inc"
    ;

// As the policy names it: W3C, Content Security Policy Level 3, 2.3.1.
std::string ScriptSource(const std::string& script) {
  if (script.empty()) return "";
  return fmt::format(" script-src 'sha256-{}';",
                     absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(script))));
}

}  // namespace

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(
      Printable(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string EscapedJson(const std::string& json) {
  return absl::StrReplaceAll(json, {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

std::string ToHtml(const HtmlPage& page) {
  return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none';{} style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{}</title>
<style>
{}{}</style>
</head>
<body><main>
{}</main>{}</body>
</html>
)",
                     ScriptSource(page.script), Escaped(page.title), kPageStyle, page.style,
                     page.body,
                     page.script.empty() ? "" : fmt::format("<script>{}</script>\n", page.script));
}

}  // namespace quench::analyser
