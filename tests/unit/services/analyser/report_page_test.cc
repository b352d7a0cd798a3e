#include "services/analyser/report_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "services/analyser/graph_layout.h"
#include "services/analyser/html.h"
#include "services/analyser/plots.h"
#include "tests/support/graphs.h"

namespace quench::analyser::report_page_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

// Two branches of products in scopes, with names that would end elements.
ModelReport TwoBranches(const AnalyseOptions& options = {}) {
  Graph graph;
  graph.name = "a</script><b>\"&'";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 8}));
  const ValueId w = graph.AddConstant("w<i>", RandomTensor({8, 8}, 1));
  const ValueId a = Add(graph, "MatMul", {x, w}, {}, "/left/</script><script>alert(1)</script>");
  const ValueId b = Add(graph, "Relu", {x}, {}, "/right/act");
  graph.outputs = {Add(graph, "Add", {a, b}, {}, "sum")};
  return *Analyse(graph, graph, options);
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

nlohmann::json DataOf(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST(ReportPageTest, NamesEndNothing) {
  const ModelReport report =
      TwoBranches({.weight_statistics = true, .ceilings = Ceilings{"<u>", "", 1, 1}});
  const std::string page = ReportPage({&report});
  EXPECT_EQ(Count(page, "<script"), 2U);  // data and ours
  EXPECT_EQ(Count(page, "</script"), 2U);
  EXPECT_EQ(Count(page, "alert(1)"), Count(page, "alert(1)\\u003c") + Count(page, "alert(1)&lt;"));
  EXPECT_EQ(Count(page, "<b>\"") + Count(page, "<i>") + Count(page, "<u>"), 0U);
  const nlohmann::json data = DataOf(page);
  EXPECT_EQ(data[0]["name"], report.name);
  EXPECT_EQ(data[0]["layers"][0][0], report.layers[0].node);
  EXPECT_EQ(data[0]["weights"][0][0], "w<i>");
  EXPECT_EQ(data[0]["weights"][0][10].size(), 20U);
}

TEST(ReportPageTest, ValuesOfARunHaveHistograms) {
  ModelReport report = TwoBranches();
  EXPECT_EQ(Count(ReportPage({&report}), "data-activations=\""), 0U);
  TensorStatistics found;
  found.elements = 3;
  found.nan = 1;
  found.histogram = {1, 1};
  report.activations = {{"v", "f32[3]", "sum", found}};
  const std::string page = ReportPage({&report});
  EXPECT_EQ(Count(page, "data-activations=\""), 1U);
  const nlohmann::json value = DataOf(page)[0]["activations"][0];
  EXPECT_EQ(value[0], "v");
  EXPECT_EQ(value[5], 1);
  EXPECT_EQ(value[10], nlohmann::json({1, 1}));
}

TEST(ReportPageTest, NothingIsFetchedAndOneScriptRuns) {
  const ModelReport report = TwoBranches();
  const std::string page = ReportPage({&report});
  for (const char* part : {"https:", " src=", "<link", "url(", "@import", "fetch(", "innerHTML"})
    EXPECT_EQ(Count(page, part), 0U) << part;
  EXPECT_EQ(Count(page, "http:"), Count(page, "http://www.w3.org/2000/svg"));
  EXPECT_EQ(Count(page, "default-src 'none'; script-src 'sha256-"), 1U);
  EXPECT_GE(Count(page, "prefers-color-scheme: dark"), 2U);
  EXPECT_EQ(Count(ToHtml({"t", "", "", "b"}), "script-src"), 0U);
}

TEST(ReportPageTest, TwoModelsAreSideBySide) {
  const ModelReport a = TwoBranches();
  ModelReport b = a;
  b.name = "other";
  b.work.parameters *= 2;
  const std::string page = ReportPage({&a, &b});
  EXPECT_EQ(DataOf(page).size(), 2U);
  EXPECT_EQ(Count(page, "data-graph=\""), 2U);
  EXPECT_EQ(Count(page, "data-differences"), Count(ReportPage({&a}), "data-differences") + 1);
  EXPECT_NE(page.find("<td class=\"number\">128</td><td class=\"number\">2</td>"),
            std::string::npos);
  EXPECT_EQ(Count(page, "<svg xmlns"), 6U);  // roofs need ceilings
}

TEST(ReportPageTest, TheGraphHasInputsLayersAndOutputs) {
  const ModelReport report = TwoBranches();
  const nlohmann::json graph = DataOf(ReportPage({&report}))[0]["graph"];
  EXPECT_EQ(graph["boxes"].size(), 2U * 5);
  std::vector<std::pair<int, int>> edges;
  for (const auto& edge : graph["edges"]) edges.emplace_back(edge[0], edge[1]);
  EXPECT_EQ(edges, (std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}}));
}

TEST(GraphLayoutTest, BoxesLieBelowWhatTheyReadAndApart) {
  std::vector<GraphEdge> edges;
  const int boxes = 300;
  for (int i = 1; i < boxes; ++i) {
    edges.push_back({i * 7 % i, i});
    if (i % 3 == 0) edges.push_back({i / 2, i});
    if (i > 200) edges.push_back({0, i});
  }
  const GraphLayout layout = LayOut(boxes, edges);
  ASSERT_EQ(layout.routes.size(), edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    const GraphPoint from = layout.boxes[static_cast<size_t>(edges[i].from)];
    const GraphPoint to = layout.boxes[static_cast<size_t>(edges[i].to)];
    EXPECT_LE(from.y + kRankHeight, to.y);
    EXPECT_EQ(layout.routes[i].front().x, from.x);
    EXPECT_EQ(layout.routes[i].back().y, to.y - kBoxHeight / 2);
  }
  for (size_t a = 0; a < layout.boxes.size(); ++a) {
    EXPECT_GE(layout.boxes[a].x, kBoxWidth / 2);
    EXPECT_LE(layout.boxes[a].x, layout.width - kBoxWidth / 2);
    EXPECT_LE(layout.boxes[a].y, layout.height);
    for (size_t b = 0; b < a; ++b) {
      if (layout.boxes[a].y != layout.boxes[b].y) continue;
      EXPECT_GE(std::abs(layout.boxes[a].x - layout.boxes[b].x), kBoxWidth) << a << " " << b;
    }
  }
}

TEST(GraphLayoutTest, ChainsAreStraight) {
  const GraphLayout layout = LayOut(4, {{0, 1}, {1, 2}, {2, 3}});
  for (const GraphPoint& box : layout.boxes) EXPECT_EQ(box.x, layout.boxes[0].x);
  EXPECT_TRUE(LayOut(0, {}).boxes.empty());
}

TEST(PlotsTest, TilesHaveTheAreasOfTheirLayers) {
  ModelReport report = TwoBranches();
  report.layers.resize(2);
  report.layers[0].work.parameters = 3000;
  report.layers[1].work.parameters = 1000;
  report.work.parameters = 4000;
  const std::string svg = PlotFile(report, "parameters");
  std::vector<double> areas;
  for (size_t at = svg.find("class=\"tile"); at != std::string::npos;
       at = svg.find("class=\"tile", at + 1)) {
    const auto number = [&](const std::string& key) {
      const size_t begin = svg.find(key + "=\"", at) + key.size() + 2;
      return std::stod(svg.substr(begin));
    };
    areas.push_back(number("width") * number("height"));
  }
  ASSERT_EQ(areas.size(), 2U) << svg;
  EXPECT_NEAR(areas[0] / areas[1], 3, 0.15);
}

TEST(PlotsTest, EveryKindIsAFileOfItsOwn) {
  EXPECT_FALSE(CanPlot(TwoBranches(), "roofline") || CanPlot(TwoBranches(), "plan"));
  ModelReport report = TwoBranches({.ceilings = Ceilings{"here", "", 10, 2}});
  report.memory_plan = {
      "host", 128, 128, {{"a", 128}, {"b", 64}}, {{"x", 0, 64, 0, 1}, {"y, z", 64, 64, 0, 0}}};
  for (const std::string& kind : PlotKinds()) {
    SCOPED_TRACE(kind);
    ASSERT_TRUE(CanPlot(report, kind));
    const std::string svg = PlotFile(report, kind);
    EXPECT_EQ(Count(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\""), 1U);
    EXPECT_EQ(Count(svg, "<style>"), 1U);
    EXPECT_EQ(Count(svg, "<script"), 0U);
    EXPECT_EQ(Count(svg, "nan"), 0U) << svg;
    // A shape without a rule of its own is filled with black.
    const std::regex shape("<(?:rect|circle|path) class=\"([^\"]+)\"");
    for (std::sregex_iterator it(svg.begin(), svg.end(), shape), end; it != end; ++it) {
      std::string style = (*it)[1].str();
      style = "." + style.substr(style.find_last_of(' ') + 1) + " {";
      EXPECT_NE(svg.find(style), std::string::npos) << style;
    }
    EXPECT_NE(svg, PlotFile(report, kind == "macs" ? "memory" : "macs"));
  }
  EXPECT_EQ(Count(PlotFile(report, "roofline"), "<circle"), 3U);
  EXPECT_EQ(Count(PlotFile(report, "plan"), "<rect class=\"life\""), 2U);
}

TEST(PlanTest, ThePlanIsListed) {
  ModelReport report = TwoBranches();
  EXPECT_EQ(ToTable(report, {.listing = "plan"}).find("offset"), std::string::npos);
  report.memory_plan = {"board",
                        192,
                        160,
                        {{"first", 128}, {"next", 192}},
                        {{"x", 0, 128, 0, 1}, {"y", 128, 64, 1, 1}}};
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["memory_plan"]["kernels"][1]["used_bytes"], 192);
  EXPECT_EQ(json["memory_plan"]["buffers"][1]["offset"], 128);
  const std::string table = ToTable(report, {.listing = "plan"});
  EXPECT_NE(table.find("first"), std::string::npos) << table;
  EXPECT_NE(table.find("for board, at least"), std::string::npos) << table;
}

TEST(PlotsTest, AModelWithoutLayersIsPlotted) {
  Graph graph;
  graph.name = "empty";
  graph.outputs = {graph.AddInput("x", Type::Tensor(DataType::kF32, {2}))};
  const ModelReport report = *Analyse(graph, graph, {.ceilings = Ceilings{"here", "", 10, 2}});
  for (const std::string& kind : PlotKinds()) {
    if (!CanPlot(report, kind)) continue;
    EXPECT_EQ(Count(PlotFile(report, kind), "nan") + Count(PlotFile(report, kind), "inf"), 0U);
  }
  EXPECT_NE(ReportPage({&report}).find("</html>"), std::string::npos);
}

}  // namespace
}  // namespace quench::analyser::report_page_test
