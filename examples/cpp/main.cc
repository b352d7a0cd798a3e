// Says which digit a picture shows, by a library that `quench compile digits.onnx` made: classify model.so
#include <quench.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

// A picture of 8 x 8 pixels, whose shades are 0 (black) to 9 (white).
constexpr char kPicture[] =
    "01696100"
    "03699400"
    "01159600"
    "01879700"
    "00252720"
    "00000650"
    "00279830"
    "00852000";

int Fail(const quench::Error& error) {
  std::fprintf(stderr, "classify: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: classify model.so\n");
    return 2;
  }
  auto model = quench::Model::Open(words[1]);
  if (!model) return Fail(model.error());
  auto session = model->NewSession();
  if (!session) return Fail(session.error());

  std::vector<float> pixels;
  for (const char shade : std::string_view(kPicture)) pixels.push_back((shade - '0') / 9.0f);
  if (auto set = session->SetInput("image", quench::View<const float>(pixels, {1, 1, 8, 8})); !set) {
    return Fail(set.error());
  }
  if (auto run = session->Run(); !run) return Fail(run.error());
  auto logits = session->Output<float>("logits");
  if (!logits) return Fail(logits.error());
  const auto best = std::max_element(logits->begin(), logits->end());
  std::printf("this is a %d\n", static_cast<int>(best - logits->begin()));
}
