// The age format: against itself, against every kind of damage, and beside the `age` program.
#include "common/runtime/age.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/runtime/crypto.h"
#include "common/runtime/quench_rt.h"

namespace quench::age_test {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr size_t kChunk = QUENCH_AGE_CHUNK, kTag = QUENCH_TAG_BYTES;

struct Pair {
  std::array<unsigned char, 32> secret{}, recipient{};
};

Pair NewPair() {
  Pair pair;
  EXPECT_EQ(quench_random(pair.secret.data(), pair.secret.size()), 1);
  EXPECT_EQ(quench_x25519_public(pair.secret.data(), pair.recipient.data()), 1);
  return pair;
}

Bytes Chunks(const std::array<unsigned char, QUENCH_AGE_HEADER_BYTES>& header, size_t header_size,
             const std::array<unsigned char, 32>& key, const Bytes& text) {
  Bytes file(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(header_size));
  size_t begin = 0;
  uint64_t index = 0;
  do {
    const size_t size = std::min(text.size() - begin, kChunk);
    Bytes sealed(size + kTag);
    const bool last = begin + size == text.size();
    EXPECT_EQ(quench_age_chunk(key.data(), index++, last ? 1 : 0, text.data() + begin, size,
                               sealed.data()),
              1);
    file.insert(file.end(), sealed.begin(), sealed.end());
    begin += size;
  } while (begin < text.size());
  return file;
}

Bytes Sealed(const Bytes& text, const Pair& pair) {
  std::array<unsigned char, QUENCH_AGE_HEADER_BYTES> header{};
  std::array<unsigned char, 32> key{};
  size_t size = 0;
  EXPECT_EQ(quench_age_begin(pair.recipient.data(), header.data(), &size, key.data()), 1);
  return Chunks(header, size, key, text);
}

Bytes SealedByPassword(const Bytes& text, const std::string& password, int work) {
  std::array<unsigned char, QUENCH_AGE_HEADER_BYTES> header{};
  std::array<unsigned char, 32> key{};
  size_t size = 0;
  EXPECT_EQ(quench_age_begin_password(password.data(), password.size(), work, header.data(), &size,
                                      key.data()),
            1);
  return Chunks(header, size, key, text);
}

quench_age_key KeyOf(const Pair& pair) {
  quench_age_key key{};
  std::copy(pair.secret.begin(), pair.secret.end(), key.secret);
  return key;
}

// The outcome of reading: a result, and the text if it succeeded.
std::pair<quench_age_result, Bytes> Opened(const Bytes& file, const quench_age_key& key) {
  const Bytes exact = file;  // reads behind its end are seen by the sanitizer
  quench_age_file opened{};
  const quench_age_result result = quench_age_open(exact.data(), exact.size(), &key, &opened);
  if (result != QUENCH_AGE_OK) return {result, {}};
  Bytes text(opened.text_size);
  return {quench_age_read(&opened, text.data()), text};
}

Bytes Text(size_t size) {
  Bytes text(size);
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<unsigned char>(i * 31 + i / 251);
  return text;
}

class AgeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(quench_crypto_load(), nullptr) << quench_crypto_load();
    pair_ = NewPair();
    key_ = KeyOf(pair_);
  }
  Pair pair_;
  quench_age_key key_{};
};

TEST_F(AgeTest, WhatIsSealedOpens) {
  for (const size_t size : {size_t{0}, size_t{1}, kChunk - 1, kChunk, kChunk + 1, 3 * kChunk}) {
    const Bytes text = Text(size);
    const auto [result, read] = Opened(Sealed(text, pair_), key_);
    EXPECT_EQ(result, QUENCH_AGE_OK) << size;
    EXPECT_EQ(read, text) << size;
  }
}

TEST_F(AgeTest, PasswordsOpen) {
  const Bytes text = Text(100);
  const Bytes file = SealedByPassword(text, "pass word", 4);
  EXPECT_EQ(Opened(file, {"pass word", 9, {}}).second, text);
  EXPECT_EQ(Opened(file, {"pass worD", 9, {}}).first, QUENCH_AGE_WRONG_KEY);
  EXPECT_EQ(Opened(file, key_).first, QUENCH_AGE_NO_KEY);
  EXPECT_EQ(Opened(Sealed(text, pair_), {"pass word", 9, {}}).first, QUENCH_AGE_NO_KEY);
}

TEST_F(AgeTest, OtherKeysDoNot) {
  EXPECT_EQ(Opened(Sealed(Text(10), pair_), KeyOf(NewPair())).first, QUENCH_AGE_WRONG_KEY);
}

// Every byte of a small file, one after the other.
TEST_F(AgeTest, NoChangedByteIsTaken) {
  const Bytes file = Sealed(Text(40), pair_);
  for (size_t i = 0; i < file.size(); ++i) {
    for (const int flip : {0x01, 0x80}) {
      Bytes changed = file;
      changed[i] = static_cast<unsigned char>(changed[i] ^ flip);
      EXPECT_NE(Opened(changed, key_).first, QUENCH_AGE_OK) << "byte " << i;
    }
  }
}

TEST_F(AgeTest, NoCutFileIsTaken) {
  const Bytes small = Sealed(Text(40), pair_);
  for (size_t size = 0; size < small.size(); ++size)
    EXPECT_NE(
        Opened(Bytes(small.begin(), small.begin() + static_cast<std::ptrdiff_t>(size)), key_).first,
        QUENCH_AGE_OK)
        << size;
}

// Chunks cut, swapped, doubled, lengthened and changed at every border.
TEST_F(AgeTest, ChunkBorders) {
  constexpr size_t kSealed = kChunk + kTag;
  const Bytes file = Sealed(Text(3 * kChunk + 100), pair_);
  const size_t payload = file.size() - (3 * kSealed + 100 + kTag);
  for (size_t chunk = 0; chunk <= 3; ++chunk) {
    const size_t border = payload + chunk * kSealed;
    for (const size_t size : {border - 1, border, border + 1, border + kTag}) {
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_NE(Opened(cut, key_).first, QUENCH_AGE_OK) << "cut at " << size;
      Bytes changed = file;
      changed[size] ^= 1;
      EXPECT_NE(Opened(changed, key_).first, QUENCH_AGE_OK) << "changed at " << size;
    }
  }
  const auto at = [&](size_t chunk) {
    return static_cast<std::ptrdiff_t>(payload + chunk * kSealed);
  };
  Bytes swapped = file;
  std::swap_ranges(swapped.begin() + at(0), swapped.begin() + at(1), swapped.begin() + at(1));
  EXPECT_EQ(Opened(swapped, key_).first, QUENCH_AGE_PAYLOAD);
  Bytes doubled = file;
  doubled.insert(doubled.begin() + at(1), file.begin() + at(0), file.begin() + at(1));
  EXPECT_EQ(Opened(doubled, key_).first, QUENCH_AGE_PAYLOAD);
  Bytes longer = file;
  longer.push_back(0);
  EXPECT_EQ(Opened(longer, key_).first, QUENCH_AGE_PAYLOAD);
}

TEST_F(AgeTest, HeadersOfOtherKinds) {
  const Bytes file = Sealed(Text(10), pair_);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text(file.begin(), file.end());
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos);
    text.replace(place, from.size(), to);
    return Opened(Bytes(text.begin(), text.end()), key_).first;
  };
  EXPECT_EQ(with("age-encryption.org/v1", "age-encryption.org/v2"), QUENCH_AGE_VERSION);
  EXPECT_EQ(with("age-encryption.org/v1", "pge-encryption.org/v1"), QUENCH_AGE_NOT_AGE);
  EXPECT_EQ(with("-> X25519", "-> Y25519"), QUENCH_AGE_NO_KEY);
  EXPECT_EQ(with("-> X25519 ", "-> X25519  "), QUENCH_AGE_HEADER);
  EXPECT_EQ(with("-> X25519 ", "-> X25519 A"), QUENCH_AGE_HEADER);
  EXPECT_EQ(with("\n--- ", "\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA 10\nAAAA\n--- "),
            QUENCH_AGE_HEADER);  // a password stands alone
  EXPECT_EQ(with("\n--- ", "\n-> other argument\nAAAA\n--- "), QUENCH_AGE_HEADER);  // the MAC
}

TEST_F(AgeTest, AbsurdWorkIsRefused) {
  const Bytes file = SealedByPassword(Text(10), "p", 4);
  const auto with_work = [&](const std::string& work) {
    std::string text(file.begin(), file.end());
    const size_t line = text.find("-> scrypt "), end = text.find('\n', line);
    text.replace(text.rfind(' ', end) + 1, end - text.rfind(' ', end) - 1, work);
    return Opened(Bytes(text.begin(), text.end()), {"p", 1, {}}).first;
  };
  EXPECT_EQ(with_work("21"), QUENCH_AGE_WORK);
  EXPECT_EQ(with_work("99999999999999999999"), QUENCH_AGE_WORK);
  for (const char* bad : {"04", "-1", "", "4x", "0"})
    EXPECT_EQ(with_work(bad), QUENCH_AGE_HEADER) << bad;
}

TEST_F(AgeTest, KeysAreText) {
  char identity[QUENCH_AGE_IDENTITY_TEXT], recipient[QUENCH_AGE_RECIPIENT_TEXT];
  quench_age_identity_text(pair_.secret.data(), identity);
  quench_age_recipient_text(pair_.recipient.data(), recipient);
  std::array<unsigned char, 32> read{};
  const std::string file = "# a comment\n\n" + std::string(identity) + "\r\n";
  EXPECT_EQ(quench_age_parse_identity(file.data(), file.size(), read.data()), 1);
  EXPECT_EQ(read, pair_.secret);
  EXPECT_EQ(quench_age_parse_recipient(recipient, read.data()), 1);
  EXPECT_EQ(read, pair_.recipient);
  for (size_t i = 0; i + 1 < sizeof recipient; ++i) {
    std::string changed = recipient;
    changed[i] = changed[i] == 'q' ? 'p' : 'q';
    EXPECT_EQ(quench_age_parse_recipient(changed.c_str(), read.data()), 0) << changed;
  }
  EXPECT_EQ(quench_age_parse_identity("", 0, read.data()), 0);
  EXPECT_EQ(quench_age_parse_identity("# only", 6, read.data()), 0);
}

// ---- libraries ----

class EncryptedModelTest : public AgeTest {
 protected:
  void SetUp() override {
    AgeTest::SetUp();
    char identity[QUENCH_AGE_IDENTITY_TEXT];
    quench_age_identity_text(pair_.secret.data(), identity);
    const std::string line = std::string(identity) + "\n";
    Write("key", SealedByPassword(Bytes(line.begin(), line.end()), "secret", 4));
    Write("identity", Bytes(line.begin(), line.end()));
    const std::string library = *ReadFile(FAKE_MODEL);
    library_ = Sealed(Bytes(library.begin(), library.end()), pair_);
    Write("m.so", library_);
  }
  void Write(const std::string& name, const Bytes& bytes) const {
    std::ofstream file(folder_.path() / name, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  std::string At(const std::string& name) const { return folder_.path() / name; }
  int Open(const std::string& library, const std::string& key, const char* password) {
    quench_rt_model* model = nullptr;
    const int code =
        quench_rt_open_encrypted(At(library).c_str(), At(key).c_str(), password, &model, &error_);
    EXPECT_EQ(model != nullptr, code == QUENCH_RT_OK);
    if (model != nullptr) {
      EXPECT_STREQ(quench_rt_describe(model)->name, "fake");
    }
    quench_rt_close(model);
    return code;
  }
  bool Says(const std::string& part) const {
    return std::string(error_.text).find(part) != std::string::npos;
  }

  const TempDir folder_ = *TempDir::Create();
  Bytes library_;
  quench_rt_error error_{};
};

TEST_F(EncryptedModelTest, OpensWithItsKey) {
  EXPECT_EQ(Open("m.so", "key", "secret"), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Open("m.so", "identity", nullptr), QUENCH_RT_OK) << error_.text;
}

TEST_F(EncryptedModelTest, ThreeErrorsAreDistinct) {
  quench_rt_model* model = nullptr;
  EXPECT_EQ(quench_rt_open_file(At("m.so").c_str(), &model, &error_), QUENCH_RT_ENCRYPTED);
  EXPECT_TRUE(Says("is encrypted, and no key is given")) << error_.text;
  EXPECT_EQ(Open("m.so", "key", "Secret"), QUENCH_RT_KEY);
  EXPECT_TRUE(Says("wrong password or corrupted key file")) << error_.text;
  Bytes changed = library_;
  changed.back() ^= 1;
  Write("changed.so", changed);
  EXPECT_EQ(Open("changed.so", "key", "secret"), QUENCH_RT_CORRUPT);
  EXPECT_TRUE(Says("is corrupted")) << error_.text;
}

TEST_F(EncryptedModelTest, WrongFilesAreNamed) {
  EXPECT_EQ(Open("m.so", "key", nullptr), QUENCH_RT_KEY);
  EXPECT_TRUE(Says("is sealed with a password, and none is given")) << error_.text;
  EXPECT_EQ(Open("m.so", "identity", "secret"), QUENCH_RT_KEY);
  EXPECT_TRUE(Says("it takes no password")) << error_.text;
  EXPECT_EQ(Open("m.so", "none", "secret"), QUENCH_RT_IO);
  EXPECT_EQ(Open("none.so", "key", "secret"), QUENCH_RT_IO);
  Write("empty", {});
  EXPECT_EQ(Open("m.so", "empty", "secret"), QUENCH_RT_KEY);
  Write("noise", Text(500));
  EXPECT_EQ(Open("m.so", "noise", "secret"), QUENCH_RT_KEY);
  EXPECT_TRUE(Says("is not a key")) << error_.text;
  EXPECT_EQ(Open("m.so", "m.so", "secret"), QUENCH_RT_KEY);  // swapped
  EXPECT_EQ(Open("key", "key", "secret"), QUENCH_RT_KEY);
  EXPECT_TRUE(Says("is not encrypted to a key")) << error_.text;
  Write("plain.so", Text(500));
  EXPECT_EQ(Open("plain.so", "key", "secret"), QUENCH_RT_INVALID);
  EXPECT_TRUE(Says("is not encrypted")) << error_.text;
  const Pair other = NewPair();
  Write("other.so", Sealed(Text(500), other));
  EXPECT_EQ(Open("other.so", "key", "secret"), QUENCH_RT_KEY);
  EXPECT_TRUE(Says("is not the key of")) << error_.text;
  Write("text.so", Sealed(Text(500), pair_));  // fine, and no library
  EXPECT_EQ(Open("text.so", "key", "secret"), QUENCH_RT_NOT_A_MODEL);
}

TEST_F(EncryptedModelTest, CutKeysAndLibrariesAreRefused) {
  for (const size_t part : {1, 2, 3}) {
    const auto cut = [&](const Bytes& bytes) {
      return Bytes(bytes.begin(),
                   bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() * part / 4));
    };
    Write("cut.so", cut(library_));
    EXPECT_EQ(Open("cut.so", "key", "secret"), QUENCH_RT_CORRUPT) << part;
    const std::string key = *ReadFile(At("key"));
    Write("cut", cut(Bytes(key.begin(), key.end())));
    EXPECT_EQ(Open("m.so", "cut", "secret"), QUENCH_RT_KEY) << part;
  }
}

// ---- the age program ----

bool Shell(const std::string& command) { return std::system(command.c_str()) == 0; }

TEST_F(EncryptedModelTest, IsWhatTheRuntimeEncrypts) {
  const std::string plain = *ReadFile(FAKE_MODEL);
  ASSERT_EQ(quench_rt_encrypt(plain.data(), plain.size(), At("new.so").c_str(),
                              At("new_key").c_str(), "correct", nullptr, &error_),
            QUENCH_RT_OK)
      << error_.text;
  EXPECT_EQ(std::filesystem::status(At("new_key")).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(Open("new.so", "new_key", "correct"), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Open("new.so", "new_key", "wrong"), QUENCH_RT_KEY);
  char recipient[QUENCH_AGE_RECIPIENT_TEXT];
  quench_age_recipient_text(pair_.recipient.data(), recipient);
  ASSERT_EQ(quench_rt_encrypt(plain.data(), plain.size(), At("to.so").c_str(), nullptr, nullptr,
                              recipient, &error_),
            QUENCH_RT_OK)
      << error_.text;
  EXPECT_EQ(Open("to.so", "identity", nullptr), QUENCH_RT_OK) << error_.text;
}

TEST_F(EncryptedModelTest, LeavesNothingWhereItCannotBeWritten) {
  const auto encrypt = [&](const std::string& path, const char* password, const char* recipient) {
    return quench_rt_encrypt("abc", 3, path.c_str(), At("k").c_str(), password, recipient, &error_);
  };
  EXPECT_EQ(encrypt(At("absent/m.so"), "secret", nullptr), QUENCH_RT_IO);
  EXPECT_NE(std::string(error_.text).find("absent/m.so"), std::string::npos) << error_.text;
  EXPECT_EQ(encrypt("/dev/full", "secret", nullptr), QUENCH_RT_IO);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_EQ(encrypt(At("x.so"), nullptr, nullptr), QUENCH_RT_INVALID);
  EXPECT_EQ(encrypt(At("x.so"), "secret", "age1x"), QUENCH_RT_INVALID);
  EXPECT_EQ(encrypt(At("x.so"), "", nullptr), QUENCH_RT_INVALID);
  EXPECT_EQ(encrypt(At("x.so"), std::string(1025, 'a').c_str(), nullptr), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "the password has 1025 bytes, it needs 1 to 1024");
  EXPECT_EQ(encrypt(At("x.so"), nullptr, "age1x"), QUENCH_RT_INVALID);
  EXPECT_NE(std::string(error_.text).find("`age1x`"), std::string::npos) << error_.text;
  EXPECT_FALSE(std::filesystem::exists(At("k")) || std::filesystem::exists(At("x.so")));
}

TEST_F(EncryptedModelTest, TheAgeProgramAgrees) {
  if (!Shell("age --version > /dev/null 2>&1")) GTEST_SKIP() << "age is not installed";
  EXPECT_TRUE(Shell("age -d -i " + At("identity") + " -o " + At("out.so") + " " + At("m.so")));
  EXPECT_EQ(*ReadFile(At("out.so")), *ReadFile(FAKE_MODEL));
  char recipient[QUENCH_AGE_RECIPIENT_TEXT];
  quench_age_recipient_text(pair_.recipient.data(), recipient);
  const std::string other = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
  EXPECT_TRUE(Shell("age -r " + other + " -r " + std::string(recipient) + " -o " + At("theirs.so") +
                    " " + FAKE_MODEL));
  EXPECT_EQ(Open("theirs.so", "key", "secret"), QUENCH_RT_OK) << error_.text;
}

// A password goes to `age` through a terminal.
TEST_F(EncryptedModelTest, TheAgeProgramOpensKeysAndMakesThem) {
  if (!Shell("age --version > /dev/null 2>&1 && python3 --version > /dev/null 2>&1"))
    GTEST_SKIP() << "age or python3 is not installed";
  std::ofstream(folder_.path() / "type.py") << R"(import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
text = b""
while True:
    try:
        piece = os.read(terminal, 4096)
    except OSError:
        break
    if not piece:
        break
    text += piece
    if text.rstrip().endswith(b":"):
        os.write(terminal, b"secret\n")
        text = b""
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
)";
  const std::string typed = "python3 " + At("type.py") + " age ";
  EXPECT_TRUE(Shell(typed + "-d -o " + At("plain_key") + " " + At("key") + " > /dev/null"));
  EXPECT_EQ(*ReadFile(At("plain_key")), *ReadFile(At("identity")));
  EXPECT_TRUE(Shell(typed + "-p -o " + At("their_key") + " " + At("identity") + " > /dev/null"));
  EXPECT_EQ(Open("m.so", "their_key", "secret"), QUENCH_RT_OK) << error_.text;
}

}  // namespace
}  // namespace quench::age_test
