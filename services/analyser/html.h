// Pages that need nothing else: no other files, no network, light and dark.
#pragma once

#include <string>

namespace quench::analyser {

// Text inside elements and quoted attributes; what cannot be shown becomes `_`.
std::string Escaped(const std::string& text);
// JSON inside a <script> of a type that is not run: nothing in it can end the element.
std::string EscapedJson(const std::string& json);

struct HtmlPage {
  std::string title;   // plain text
  std::string style;   // beside that of all pages (page/page.css); ours
  std::string script;  // ours; "": the page runs none
  std::string body;    // HTML inside <main>
};
// The policy of the page lets a browser fetch nothing, and run this script alone.
std::string ToHtml(const HtmlPage& page);

}  // namespace quench::analyser
