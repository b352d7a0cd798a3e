#include "services/codegen/plan/line_reader.h"

#include <gtest/gtest.h>

#include "services/codegen/kernels/kernel.h"

namespace quench::codegen::line_reader_test {
namespace {

TEST(LineReaderTest, LinesOfWords) {
  const std::string text = "\n# a remark\na b12 `x y` \"\\n\" f32 7 0.5\n\n  c\n   d";
  LineReader lines(text);
  EXPECT_EQ(lines.depth(), 0);
  EXPECT_TRUE(lines.Take("a "));
  EXPECT_EQ(*lines.Id('b', 13), 12);
  EXPECT_TRUE(lines.Take(" "));
  EXPECT_EQ(*lines.Name(), "x y");
  EXPECT_TRUE(lines.Take(" "));
  EXPECT_EQ(*lines.Name(), "\n");
  EXPECT_TRUE(lines.Take(" "));
  EXPECT_EQ(*lines.Word(), "f32");
  EXPECT_TRUE(lines.Take(" "));
  EXPECT_EQ(*lines.Number(7), 7);
  EXPECT_TRUE(lines.Take(" "));
  EXPECT_EQ(*lines.Decimal(), 0.5);
  EXPECT_TRUE(lines.EndLine().ok());
  EXPECT_EQ(lines.depth(), 1);
  EXPECT_FALSE(lines.TakeClause("cc"));
  EXPECT_TRUE(lines.TakeClause("c"));
  EXPECT_TRUE(lines.EndLine().ok());
  EXPECT_EQ(lines.depth(), -1);  // three spaces
  EXPECT_EQ(lines.TakeRest(), "d");
  EXPECT_TRUE(lines.AtEnd());
}

TEST(LineReaderTest, SizesEndWhereTheirOperandsDo) {
  SymbolTable symbols;
  for (const char* name : {"n", "tasks", "a, b"}) symbols.AddInput(name, {0, 0});
  for (const char* size : {"12", "n", "2*n + 1", "-n + 4", "tasks", "floordiv(n + 1, 2)*3",
                           "\"a, b\" - n", "max(\"a, b\", n)"}) {
    SCOPED_TRACE(size);
    const std::string text = std::string(size) + " tasks, more";
    LineReader lines(text);
    EXPECT_TRUE(lines.IsSize(" tasks"));
    EXPECT_FALSE(lines.IsSize(" bytes"));
    EXPECT_TRUE(lines.Size(symbols).ok());
    EXPECT_EQ(lines.Rest(), " tasks, more");
  }
}

TEST(LineReaderTest, ErrorsSayWhatWasFound) {
  const std::string text = "one\nb9, and so on";
  LineReader lines(text);
  EXPECT_EQ(lines.Expect("two").message(), "1:1: `one` was found, `two` was expected");
  EXPECT_TRUE(lines.Take("one"));
  EXPECT_EQ(lines.Number(3).status().message(),
            "1:4: the line ends, a number from 0 to 3 was expected");
  ASSERT_TRUE(lines.EndLine().ok());
  EXPECT_EQ(lines.EndLine().message(),
            "2:1: `b9, and so on` was found, the end of the line was expected");
  EXPECT_EQ(lines.Id('b', 4).status().message(),
            "2:1: there is no `b9`: the last one that is declared is `b3`");
  EXPECT_EQ(lines.Name().status().message(),
            "2:3: `, and so on` was found, a name in backticks was expected");
}

TEST(LayoutTest, TextsAreRead) {
  for (const char* text : {"row-major", "NCHW8c", "NHWC", "NCH16c", "NCHW4[4]", "NCHW2n"}) {
    const std::optional<Layout> layout = Layout::Parse(text);
    ASSERT_TRUE(layout.has_value()) << text;
    EXPECT_EQ(layout->ToString(), text);
  }
  EXPECT_EQ(*Layout::Parse("NCHW8c"), (Layout{1, 8, {}}));
  EXPECT_EQ(*Layout::Parse("NHWC"), (Layout{-1, 1, {0, 2, 3, 1}}));
  for (const char* text : {"", "NN", "NC8", "8c", "NCHW1c", "NCHW08c", "NCHW8cc", "NCHW8C", "NHWX",
                           "N[7]", "[", "NCHW99999999c", "[-1]", "NCHW", "NCHW[4]"}) {
    EXPECT_FALSE(Layout::Parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace quench::codegen::line_reader_test
