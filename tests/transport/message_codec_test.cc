#include "transport/message_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace lockstep::transport {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;

constexpr size_t kLimit = size_t{1} << 24;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

GenerateRequest SomeRequest() {
  GenerateRequest request;
  request.request_id = int64_t{1} << 40;
  request.ordinal = 123456789012;
  request.prompt_ids = {1, 2, 49151};
  request.num_samples = 8;
  request.first_sample_idx = 16;
  request.params.temperature = 0.7f;
  request.params.top_k = 50;
  request.params.top_p = 0.95f;
  request.params.max_tokens = 64;
  request.params.min_tokens = 2;
  request.params.stop_ids = {2, 0};
  request.params.stop = {"\n\n", std::string("\xe2\x82", 2)};  // half a character
  request.seed = ~uint64_t{0};
  request.turn = 3;
  request.weight_version = {7, 0xfedcba9876543210};
  return request;
}

GenerateResult SomeResult() {
  GenerateResult result;
  result.request_id = 5;
  result.ordinal = 9;
  result.sample_idx = 2;
  result.tokens = {{10, -0.5f, true, 7}, {11, -1e-40f, true, 8}, {12, 0.0f, false, 8}};
  result.kept.Append(KeptIds::Kind::kKept, {10, 20});
  result.kept.Append(KeptIds::Kind::kAll, {});
  result.kept.Append(KeptIds::Kind::kCut, {3});
  result.finish_reason = FinishReason::kLength;
  result.error = "quotes \xff anything";
  result.seconds = 1.25;
  return result;
}

std::vector<Message> OneOfEach() {
  return {Hello{-3, 4711, "avx512_core_amx onednn 2.6.3", "00ff"},
          Heartbeat{1, 17, 4},
          SomeRequest(),
          SomeResult(),
          CancelRequests{{1, -2, 3}},
          PublishWeights{{3, 77}, 1},
          PublishAck{2, {3, 77}},
          PhaseChange{12, PhaseChange::Phase::kTrain},
          Stop{"SIGTERM at rank 0"},
          ErrorReport{2, 5, "cannot load", {"no file", std::string("\0x", 2)}},
          Metrics{2, R"({"tokens": 3})"}};
}

void ExpectEqual(const GenerateResult& a, const GenerateResult& b) {
  EXPECT_EQ(std::tie(a.request_id, a.ordinal, a.sample_idx, a.finish_reason, a.error, a.seconds),
            std::tie(b.request_id, b.ordinal, b.sample_idx, b.finish_reason, b.error, b.seconds));
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].id, b.tokens[i].id);
    EXPECT_EQ(std::bit_cast<uint32_t>(a.tokens[i].rollout_logprob),
              std::bit_cast<uint32_t>(b.tokens[i].rollout_logprob));
    EXPECT_EQ(a.tokens[i].logprob_valid, b.tokens[i].logprob_valid);
    EXPECT_EQ(a.tokens[i].weight_version, b.tokens[i].weight_version);
  }
  EXPECT_EQ(a.kept.kinds, b.kept.kinds);
  EXPECT_EQ(a.kept.offsets, b.kept.offsets);
  EXPECT_EQ(a.kept.ids, b.kept.ids);
}

void ExpectEqual(const Message& a, const Message& b) {
  ASSERT_EQ(a.index(), b.index());
  std::visit(
      [&b](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, GenerateResult>) {
          ExpectEqual(value, std::get<T>(b));
        } else {
          EXPECT_TRUE(value == std::get<T>(b));
        }
      },
      a);
}

TEST(MessageCodec, EveryKindComesBackEqual) {
  const std::vector<Message> messages = OneOfEach();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (size_t kind = 0; kind < messages.size(); ++kind) {
    SCOPED_TRACE(MessageName(messages[kind]));
    ASSERT_EQ(messages[kind].index(), kind);
    ASSERT_OK_AND_ASSIGN(const std::string bytes, Encode(messages[kind], kLimit));
    ASSERT_OK_AND_ASSIGN(const Message back, Decode(Bytes(bytes)));
    ExpectEqual(messages[kind], back);
  }
}

TEST(MessageCodec, EmptyFieldsComeBackEmpty) {
  GenerateResult empty;
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Encode(empty, kLimit));
  ASSERT_OK_AND_ASSIGN(const Message back, Decode(Bytes(bytes)));
  ExpectEqual(Message(empty), back);
  EXPECT_TRUE(std::get<GenerateResult>(back).kept.empty());
}

TEST(MessageCodec, LogProbsKeepTheirBitsWhateverTheyAre) {
  GenerateResult result;
  for (const uint32_t bits :
       {0x00000000u, 0x80000000u, 0x00000001u, 0x7f800000u, 0xff800000u, 0x7fc00123u, 0xbf000001u}) {
    result.tokens.push_back({1, std::bit_cast<float>(bits), true, 1});
  }
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Encode(result, kLimit));
  ASSERT_OK_AND_ASSIGN(const Message back, Decode(Bytes(bytes)));
  ExpectEqual(Message(result), back);
}

TEST(MessageCodec, PayloadsNeedNoAlignment) {
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Encode(SomeRequest(), kLimit));
  for (size_t shift = 1; shift < 8; ++shift) {
    const std::string moved = std::string(shift, '#') + bytes;
    EXPECT_OK(Decode(Bytes(moved).subspan(shift)));
  }
}

TEST(MessageCodec, AnotherProtocolVersionIsRefused) {
  ASSERT_OK_AND_ASSIGN(std::string bytes, Encode(Stop{"x"}, kLimit));
  // [segment table: 8][root pointer: 8][data of the envelope: the version first]
  ASSERT_EQ(bytes[16], kProtocolVersion);
  bytes[16] = kProtocolVersion + 1;
  EXPECT_THAT(Decode(Bytes(bytes)), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("protocol version 2")));
}

TEST(MessageCodec, AnUnknownKindIsRefused) {
  ASSERT_OK_AND_ASSIGN(std::string bytes, Encode(Stop{"x"}, kLimit));
  ASSERT_EQ(bytes[18], 8);  // the union's tag follows the version
  bytes[18] = 99;
  EXPECT_THAT(Decode(Bytes(bytes)), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("unknown kind 99")));
}

TEST(MessageCodec, TruncatedBytesAreErrors) {
  for (const Message& message : OneOfEach()) {
    ASSERT_OK_AND_ASSIGN(const std::string bytes, Encode(message, kLimit));
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THAT(Decode(Bytes(bytes.substr(0, size))),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("malformed")))
          << MessageName(message) << " cut at " << size;
    }
  }
}

// Every byte of every kind changed in several ways, and runs of noise: an error or some message, never a crash (the
// sanitizer builds look closer).
TEST(MessageCodec, DamagedBytesNeverCrash) {
  std::mt19937 random(1);
  int num_decoded = 0, num_refused = 0;
  const auto try_it = [&](const std::string& bytes) { ++(Decode(Bytes(bytes)).ok() ? num_decoded : num_refused); };
  for (const Message& message : OneOfEach()) {
    ASSERT_OK_AND_ASSIGN(const std::string bytes, Encode(message, kLimit));
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int flip : {0x01, 0x04, 0x80, 0xff}) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        try_it(damaged);
      }
    }
    for (int round = 0; round < 300; ++round) {
      std::string damaged = bytes;
      for (int change = 0; change < 8; ++change) damaged[random() % damaged.size()] = static_cast<char>(random());
      try_it(damaged);
    }
  }
  for (int round = 0; round < 2000; ++round) {
    std::string noise(8 * (random() % 40), '\0');
    for (char& byte : noise) byte = static_cast<char>(random() % 7 == 0 ? random() : 0);
    try_it(noise);
  }
  EXPECT_GT(num_decoded, 100);
  EXPECT_GT(num_refused, 1000);
}

TEST(MessageCodec, RecordsThatContradictThemselvesAreRefused) {
  const auto refused = [](const Message& message, const std::string& why) {
    const auto bytes = Encode(message, kLimit);
    ASSERT_OK(bytes);
    EXPECT_THAT(Decode(Bytes(*bytes)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  GenerateResult result = SomeResult();
  result.kept.offsets[1] = 99;
  refused(result, "offsets of kept ids");
  result = SomeResult();
  result.kept.offsets.back() += 1;
  refused(result, "offsets of kept ids");
  result = SomeResult();
  result.kept.kinds.pop_back();
  refused(result, "kept ids for 2 of 3 tokens");
  result = SomeResult();
  result.kept.kinds[0] = static_cast<KeptIds::Kind>(3);
  refused(result, "kind of kept ids 3");
  result = SomeResult();
  result.finish_reason = static_cast<FinishReason>(9);
  refused(result, "finish reason 9");
  GenerateRequest request = SomeRequest();
  request.params.top_p = std::nanf("");
  refused(request, "top_p");
  request = SomeRequest();
  request.num_samples = 0;
  refused(request, "0 samples");
  request = SomeRequest();
  request.first_sample_idx = std::numeric_limits<int32_t>::max();
  refused(request, "samples from");
  request = SomeRequest();
  request.prompt_ids.clear();
  refused(request, "empty prompt");
  refused(PhaseChange{1, static_cast<PhaseChange::Phase>(7)}, "phase 7");
}

TEST(MessageCodec, MessagesAboveTheLimitAreNotBuilt) {
  EXPECT_THAT(Encode(Stop{std::string(2000, 'x')}, 1024),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("Stop message of")));
}

TEST(Messages, ErrorsTravelWithTheirCauses) {
  const ErrorReport report =
      ReportOf(2, absl::NotFoundError("model folder /m"), {"open /m/config.json", "No such file"});
  EXPECT_THAT(StatusOf(report),
              StatusIs(absl::StatusCode::kNotFound, "worker 2: model folder /m: open /m/config.json: No such file"));
  EXPECT_THAT(StatusOf(ErrorReport{1, 0, "said OK", {}}), StatusIs(absl::StatusCode::kUnknown, HasSubstr("said OK")));
  EXPECT_THAT(StatusOf(ErrorReport{1, 999, "odd", {}}), StatusIs(absl::StatusCode::kUnknown, HasSubstr("odd")));
}

}  // namespace
}  // namespace lockstep::transport
