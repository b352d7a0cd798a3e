#include "common/runner/images.h"

#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>
#include <zip.h>

#include <cmath>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/samples.h"
#include "tests/support/matchers.h"

namespace quench::images_test {
namespace {

using testing::HasSubstr;

using Pixels = std::vector<uint8_t>;  // red, green, blue of each, row by row

ArtifactDim Fixed(int64_t size) { return {size, "", size, size}; }
ArtifactTensor Input(const std::vector<int64_t>& dims, DataType dtype = DataType::kF32) {
  ArtifactTensor input{"x", dtype, {}};
  for (const int64_t dim : dims) input.dims.push_back(Fixed(dim));
  return input;
}

class ImagesTest : public ::testing::Test {
 protected:
  std::filesystem::path Path(const std::string& name) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    return path;
  }
  std::filesystem::path Png(const std::string& name, uint32_t width, uint32_t height,
                            const Pixels& pixels, uint32_t format = PNG_FORMAT_RGB) {
    png_image image = {};
    image.version = PNG_IMAGE_VERSION;
    image.width = width;
    image.height = height;
    image.format = format;
    const std::filesystem::path path = Path(name);
    EXPECT_NE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr), 0);
    return path;
  }
  std::filesystem::path Jpeg(const std::string& name, int width, int height, const Pixels& pixels) {
    const tjhandle handle = tjInitCompress();
    unsigned char* bytes = nullptr;
    unsigned long size = 0;  // NOLINT: the library's type
    EXPECT_EQ(tjCompress2(handle, pixels.data(), width, 0, height, TJPF_RGB, &bytes, &size,
                          TJSAMP_444, 100, 0),
              0);
    const std::filesystem::path path = Path(name);
    EXPECT_TRUE(WriteFileAtomically(path, {reinterpret_cast<const char*>(bytes), size}).ok());
    tjFree(bytes);
    tjDestroy(handle);
    return path;
  }
  // Elements of the image in an input of these dims.
  std::vector<float> Read(const std::filesystem::path& path, const std::vector<int64_t>& dims,
                          const std::string& spec) {
    const auto options = ParseImageOptions(spec);
    EXPECT_TRUE(options.ok()) << options.status();
    const auto place = ImagePlaceOf(Input(dims));
    EXPECT_TRUE(place.ok()) << place.status();
    const auto tensor = ReadImage(path, *place, DataType::kF32, *options, path.filename());
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    if (!tensor.ok()) return {};
    return {tensor->as<float>().begin(), tensor->as<float>().end()};
  }
  const TempDir folder_ = *TempDir::Create();
};

Pixels Four() { return {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120}; }  // 2 x 2

TEST_F(ImagesTest, PixelsGoWhereTheInputHasThem) {
  const auto path = Png("a.png", 2, 2, Four());
  EXPECT_EQ(Read(path, {1, 3, 2, 2}, "bytes"),
            (std::vector<float>{10, 40, 70, 100, 20, 50, 80, 110, 30, 60, 90, 120}));
  EXPECT_EQ(Read(path, {1, 2, 2, 3}, "bytes"),
            (std::vector<float>{10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120}));
  EXPECT_EQ(Read(path, {1, 3, 2, 2}, "bytes,order=bgr"),
            (std::vector<float>{30, 60, 90, 120, 20, 50, 80, 110, 10, 40, 70, 100}));
  const std::vector<float> gray = Read(path, {1, 1, 2, 2}, "bytes");
  ASSERT_EQ(gray.size(), 4);
  EXPECT_NEAR(gray[0], 0.299 * 10 + 0.587 * 20 + 0.114 * 30, 1e-4);
}

TEST_F(ImagesTest, ElementsAreScaled) {
  const auto path = Png("a.png", 1, 1, {255, 0, 51});
  const std::vector<float> unit = Read(path, {1, 3, 1, 1}, "unit");
  EXPECT_EQ(unit, (std::vector<float>{1, 0, 0.2F}));
  EXPECT_EQ(Read(path, {1, 3, 1, 1}, "signed")[1], -1);
  const std::vector<float> imagenet = Read(path, {1, 3, 1, 1}, "imagenet");
  EXPECT_NEAR(imagenet[0], (1 - 0.485) / 0.229, 1e-5);
  EXPECT_NEAR(imagenet[2], (0.2 - 0.406) / 0.225, 1e-5);
  const std::vector<float> own = Read(path, {1, 3, 1, 1}, "mean=5/6/7,std=2/2/4,divide=1");
  EXPECT_EQ(own, (std::vector<float>{125, -3, 11}));
}

// Shrinking takes the mean of what falls together; growing is linear between centres.
TEST_F(ImagesTest, SizesAreFitted) {
  Pixels ramp;  // 8 x 4: red counts columns, green rows
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 8; ++x) {
      ramp.push_back(static_cast<uint8_t>(10 * x));
      ramp.push_back(static_cast<uint8_t>(10 * y));
      ramp.push_back(0);
    }
  }
  const auto path = Png("ramp.png", 8, 4, ramp);
  const std::vector<float> small = Read(path, {1, 3, 2, 4}, "bytes");
  ASSERT_EQ(small.size(), 24);
  EXPECT_NEAR(small[1], 25, 0.01);       // centre of columns 2 and 3
  EXPECT_NEAR(small[8 + 0], 6.25, 1.3);  // of rows 0 and 1, more of them seen
  const std::vector<float> large = Read(path, {1, 3, 4, 16}, "bytes");
  EXPECT_NEAR(large[0], 0, 0.01);
  EXPECT_NEAR(large[2], 7.5, 0.01);
  EXPECT_NEAR(large[3], 12.5, 0.01);
  // The middle 7/8 of the shorter side, as far along the longer one.
  const std::vector<float> crop = Read(path, {1, 3, 7, 7}, "bytes,fit=crop");
  EXPECT_NEAR(crop[3], 35, 0.6);  // the middle column
  EXPECT_GT(crop[0], 15);
  EXPECT_LT(crop[6], 55);
  // Four rows of eight in the middle of eight.
  const std::vector<float> pad = Read(path, {1, 3, 8, 8}, "bytes,fit=pad");
  EXPECT_EQ(pad[0], 114);
  EXPECT_EQ(pad[7 * 8 + 7], 114);
  EXPECT_EQ(pad[2 * 8 + 3], 30);
  EXPECT_EQ(pad[64 + 5 * 8 + 3], 30);  // green of the last row
}

TEST_F(ImagesTest, JpegsAndTransparencyAreRead) {
  Pixels even;
  for (int i = 0; i < 16 * 16; ++i) even.insert(even.end(), {200, 100, 50});
  const auto jpeg = Jpeg("even.JPG", 16, 16, even);
  EXPECT_TRUE(IsImageFile(jpeg));
  const std::vector<float> pixels = Read(jpeg, {1, 3, 4, 4}, "bytes");
  EXPECT_NEAR(pixels[0], 200, 2);
  EXPECT_NEAR(pixels[16], 100, 2);
  EXPECT_NEAR(pixels[32], 50, 2);
  const auto png = Png("t.png", 1, 1, {200, 100, 50, 0}, PNG_FORMAT_RGBA);
  EXPECT_EQ(Read(png, {1, 3, 1, 1}, "bytes"), (std::vector<float>{0, 0, 0}));
}

TEST_F(ImagesTest, BytesTakeBytes) {
  const auto path = Png("a.png", 2, 2, Four());
  const auto place = ImagePlaceOf(Input({1, 2, 2, 3}, DataType::kU8));
  ASSERT_TRUE(place.ok()) << place.status();
  const auto tensor = ReadImage(path, *place, DataType::kU8, *ParseImageOptions("bytes"), "a.png");
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype(), DataType::kU8);
  EXPECT_EQ(tensor->IntAt(5), 60);
}

TEST_F(ImagesTest, WhatIsNoImageIsNamed) {
  const auto read = [&](const std::string& name, std::string_view bytes) {
    EXPECT_TRUE(WriteFileAtomically(Path(name), bytes).ok());
    const absl::Status status =
        ReadImage(Path(name), {3, 2, 2, false}, DataType::kF32, {}, name).status();
    EXPECT_EQ(CheckImage(Path(name), name).ok() || !status.ok(), true);
    return MessageOf(status);
  };
  EXPECT_THAT(read("a.png", "no image"), HasSubstr("`a.png` is neither PNG nor JPEG (8 bytes)"));
  EXPECT_THAT(read("b.png", ""), HasSubstr("`b.png` is neither PNG nor JPEG (0 bytes)"));
  EXPECT_THAT(read("i.jpg", "\xFF\xD8"), HasSubstr("`i.jpg` has no pixels"));
  EXPECT_THAT(read("c.png", "\x89PNG\r\n\x1a\nxx"), HasSubstr("`c.png` is not a PNG"));
  std::string png = *ReadFile(Png("d.png", 2, 2, Four()));
  EXPECT_THAT(read("e.png", png.substr(0, png.size() - 20)), HasSubstr("damaged PNG"));
  Pixels noise;
  for (int i = 0; i < 64 * 64 * 3; ++i) noise.push_back(static_cast<uint8_t>(i * 97 % 251));
  const std::string jpeg = *ReadFile(Jpeg("f.jpg", 64, 64, noise));
  EXPECT_THAT(read("g.jpg", jpeg.substr(0, jpeg.size() / 2)), HasSubstr("damaged JPEG"));
  // A head that announces 60,000 x 60,000 pixels is enough to refuse it.
  png[16] = png[17] = png[20] = png[21] = 0;
  png[18] = png[22] = static_cast<char>(0xEA);
  png[19] = png[23] = 0x60;
  const std::string text = read("h.png", png);
  EXPECT_TRUE(text.find("60000 x 60000 pixels") != std::string::npos ||
              text.find("`h.png` is not a PNG") != std::string::npos)  // its checksum is wrong too
      << text;
}

TEST_F(ImagesTest, WordsAreExplained) {
  EXPECT_THAT(MessageOf(ParseImageOptions("imagnet").status()),
              HasSubstr("there are imagenet, unit, signed and bytes"));
  const std::string text =
      MessageOf(ParseImageOptions("unit,fit=zoom,mean=1/2,std=0/1/1,divide=x").status());
  EXPECT_THAT(text, HasSubstr("`fit=zoom`"));
  EXPECT_THAT(text, HasSubstr("three numbers"));
  EXPECT_THAT(text, HasSubstr("0 is not a deviation"));
  EXPECT_THAT(text, HasSubstr("`x` is not a number"));
  EXPECT_THAT(MessageOf(ParseImageOptions("").status()), HasSubstr("images: ``"));
}

TEST_F(ImagesTest, InputsThatTakeNoImagesAreNamed) {
  for (const ArtifactTensor& input :
       {Input({1, 5, 4, 4}), Input({2, 3, 4, 4}), Input({3}), Input({1, 3, 4, 4}, DataType::kI64)})
    EXPECT_THAT(MessageOf(ImagePlaceOf(input).status()),
                HasSubstr("input `x` does not accept images"));
  EXPECT_TRUE(ImagePlaceOf(Input({3, 4, 4})).ok());
}

TEST_F(ImagesTest, FoldersAndArchivesOfImagesAreSamples) {
  Png("data/cats/1.png", 2, 2, Four());
  Png("data/dogs/2.png", 1, 1, {1, 2, 3});
  SampleFormat format;
  const std::vector<ArtifactTensor> inputs = {Input({1, 3, 2, 2})};
  EXPECT_THAT(MessageOf(OpenSamples(Path("data"), inputs, format, {}).status()),
              HasSubstr("nothing says how it is scaled"));
  format.images = *ParseImageOptions("bytes");
  const auto expect = [&](const std::filesystem::path& path) {
    const auto samples = OpenSamples(path, inputs, format, {});
    ASSERT_TRUE(samples.ok()) << samples.status();
    ASSERT_EQ((*samples)->count(), 2);
    EXPECT_EQ((*samples)->NameOf(1), "`dogs/2.png`");
    EXPECT_EQ((*samples)->Read(1)->at(0).as<float>()[11], 3);
  };
  expect(Path("data"));
  const auto archive = [&](const std::string& name, const std::string& entry) {
    zip_t* zip = zip_open(Path(name).c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    for (const char* file : {"cats/1.png", "dogs/2.png"}) {
      zip_source_t* source = zip_source_file(zip, Path(std::string("data/") + file).c_str(), 0, -1);
      zip_file_add(zip, (entry + file).c_str(), source, 0);
    }
    EXPECT_EQ(zip_close(zip), 0);
    return Path(name);
  };
  expect(archive("plain.zip", ""));
  expect(archive("folder.zip", "data/"));
  EXPECT_THAT(MessageOf(OpenSamples(archive("evil.zip", "../../"), inputs, format, {}).status()),
              HasSubstr("would lie outside"));
  // Rank 3: the batch is left out.
  const auto samples = OpenSamples(Path("data"), std::vector{Input({2, 2, 3})}, format, {});
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ((*samples)->Read(0)->at(0).dims(), (std::vector<int64_t>{2, 2, 3}));
}

}  // namespace
}  // namespace quench::images_test
