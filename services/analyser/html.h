// Self-contained pages: they need no other files and no network, and have light and dark modes.
#pragma once

#include <string>

namespace quench::analyser {

// Text inside elements and quoted attributes; characters that cannot be shown become `_`.
std::string Escaped(const std::string& text);
// JSON inside a <script> of a type that browsers do not run: nothing in it can end the element.
std::string EscapedJson(const std::string& json);

struct HtmlPage {
  std::string title;   // plain text
  std::string style;   // in addition to page/page.css; trusted
  std::string script;  // trusted; "": the page runs none
  std::string body;    // HTML inside <main>
};
// The policy of the page lets a browser fetch nothing, and run only this script.
std::string ToHtml(const HtmlPage& page);

}  // namespace quench::analyser
