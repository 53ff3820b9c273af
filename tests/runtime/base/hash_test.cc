#include "runtime/base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep {
namespace {

std::string SomeBytes(size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

// XXH3-64 with seed 0, as `xxhsum -H3` prints it. Weight hashes and packing rely on these values from run to run.
TEST(Hash, KnownValues) {
  EXPECT_EQ(HashToHex(Hash64("", 0)), "2d06800538d394c2");
  EXPECT_EQ(HashToHex(Hash64("a", 1)), "e6c632b61e964e1f");
  EXPECT_EQ(HashToHex(Hash64("abc", 3)), "78af5f94892f3950");
}

TEST(Hash, HexHasAllDigits) {
  EXPECT_EQ(HashToHex(0), "0000000000000000");
  EXPECT_EQ(HashToHex(0x00ab), "00000000000000ab");
  EXPECT_EQ(HashToHex(0xfedcba9876543210), "fedcba9876543210");
}

TEST(Hasher, CutsDoNotMatter) {
  const std::string bytes = SomeBytes(5000);  // longer than the block that XXH3 works in
  const uint64_t whole = Hash64(bytes.data(), bytes.size());
  for (const size_t piece : {1, 7, 64, 256, 1024, 4999, 5000}) {
    Hasher hasher;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hasher.Update(bytes.data() + at, std::min(piece, bytes.size() - at));
    }
    EXPECT_EQ(hasher.Digest(), whole) << "pieces of " << piece;
  }
}

TEST(Hasher, DigestMayBeReadOnTheWay) {
  Hasher hasher;
  EXPECT_EQ(hasher.Digest(), Hash64("", 0));
  hasher.Update("ab", 2);
  EXPECT_EQ(hasher.Digest(), Hash64("ab", 2));
  hasher.Update("", 0);
  hasher.Update("c", 1);
  EXPECT_EQ(hasher.Digest(), Hash64("abc", 3));
}

TEST(Hash, EveryBitCounts) {
  std::string bytes = SomeBytes(300);
  std::set<uint64_t> hashes = {Hash64(bytes.data(), bytes.size())};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    hashes.insert(Hash64(bytes.data(), bytes.size()));
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  }
  EXPECT_EQ(hashes.size(), 1 + bytes.size() * 8);
}

}  // namespace
}  // namespace lockstep
