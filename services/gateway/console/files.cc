#include "services/gateway/console/files.h"

#include <vector>

#include "common/blobs/digest.h"

namespace quench::gateway {
namespace {

constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kCss[] = "text/css; charset=utf-8";
constexpr char kScript[] = "text/javascript; charset=utf-8";

constexpr char kIndexText[] =
#include "embedded/index.html.inc"
    ;
constexpr char kConsoleText[] =
#include "embedded/console.css.inc"
    ;
constexpr char kMainText[] =
#include "embedded/main.js.inc"
    ;
constexpr char kApiText[] =
#include "embedded/api.js.inc"
    ;
constexpr char kDomText[] =
#include "embedded/dom.js.inc"
    ;
constexpr char kFormatText[] =
#include "embedded/format.js.inc"
    ;
constexpr char kWorkflowsText[] =
#include "embedded/workflows.js.inc"
    ;
constexpr char kWorkflowText[] =
#include "embedded/workflow.js.inc"
    ;
constexpr char kGraphText[] =
#include "embedded/graph.js.inc"
    ;
constexpr char kFleetsText[] =
#include "embedded/fleets.js.inc"
    ;
constexpr char kMachineText[] =
#include "embedded/machine.js.inc"
    ;

const std::vector<PageFile>& Files() {
  static const auto* const files = [] {
    auto* all = new std::vector<PageFile>{
        {"/", kHtml, kIndexText, ""},
        {"/console.css", kCss, kConsoleText, ""},
        {"/main.js", kScript, kMainText, ""},
        {"/api.js", kScript, kApiText, ""},
        {"/dom.js", kScript, kDomText, ""},
        {"/format.js", kScript, kFormatText, ""},
        {"/workflows.js", kScript, kWorkflowsText, ""},
        {"/workflow.js", kScript, kWorkflowText, ""},
        {"/graph.js", kScript, kGraphText, ""},
        {"/fleets.js", kScript, kFleetsText, ""},
        {"/machine.js", kScript, kMachineText, ""},
    };
    constexpr size_t kTagLength = 32;
    for (PageFile& file : *all) file.tag = '"' + Sha256Hex(file.text).substr(0, kTagLength) + '"';
    return all;
  }();
  return *files;
}

}  // namespace

const PageFile* FindPageFile(std::string_view path) {
  for (const PageFile& file : Files()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace quench::gateway
