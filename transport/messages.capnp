# What the message bus carries. Meaning and words: transport/message.h. Limits and checks: transport/message_codec.h.
# Texts are Data: bytes that need not be UTF-8 (a stop text may end inside a character, an error may quote anything).
# Fields are only ever added at the end; a change of meaning raises kProtocolVersion.
@0xc2a7f3a1d1b84e5f;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("lockstep::transport::wire");

struct Envelope {
  protocolVersion @0 :UInt16;
  body :union {
    hello @1 :Hello;
    heartbeat @2 :Heartbeat;
    generateRequest @3 :GenerateRequest;
    generateResult @4 :GenerateResult;
    cancelRequests @5 :CancelRequests;
    publishWeights @6 :PublishWeights;
    publishAck @7 :PublishAck;
    phaseChange @8 :PhaseChange;
    stop @9 :Stop;
    errorReport @10 :ErrorReport;
    metrics @11 :Metrics;
  }
}

struct WeightVersion {
  number @0 :Int64;
  hash @1 :UInt64;
}

struct Hello {
  workerId @0 :Int32;
  pid @1 :Int64;
  kernelSignature @2 :Data;
  modelHash @3 :Data;
}

struct Heartbeat {
  workerId @0 :Int32;
  numRequestsInFlight @1 :Int64;
  weightVersion @2 :Int64;
}

struct SamplingParams {
  temperature @0 :Float32;
  topK @1 :Int32;
  topP @2 :Float32;
  maxTokens @3 :Int32;
  minTokens @4 :Int32;
  stopIds @5 :List(Int32);
  stop @6 :List(Data);
}

struct GenerateRequest {
  requestId @0 :Int64;
  ordinal @1 :Int64;
  promptIds @2 :List(Int32);
  numSamples @3 :Int32;
  firstSampleIdx @4 :Int32;
  params @5 :SamplingParams;
  seed @6 :UInt64;
  turn @7 :Int32;
  weightVersion @8 :WeightVersion;
  purpose @9 :UInt8;
}

struct GenerateResult {
  requestId @0 :Int64;
  ordinal @1 :Int64;
  sampleIdx @2 :Int32;
  # Four lists of equal length: one entry per token.
  ids @3 :List(Int32);
  rolloutLogprobs @4 :List(Float32);
  logprobValid @5 :List(Bool);
  weightVersions @6 :List(Int64);
  # KeptIds: both empty, or kinds has one entry per token and offsets one more, from 0, growing, to the size of keptIds.
  keptKinds @7 :List(UInt8);
  keptOffsets @8 :List(Int32);
  keptIds @9 :List(Int32);
  finishReason @10 :UInt8;
  error @11 :Data;
  seconds @12 :Float64;
}

struct CancelRequests {
  requestIds @0 :List(Int64);
}

struct PublishWeights {
  version @0 :WeightVersion;
  slot @1 :Int32;
}

struct PublishAck {
  workerId @0 :Int32;
  version @1 :WeightVersion;
}

struct PhaseChange {
  step @0 :Int64;
  phase @1 :UInt8;
}

struct Stop {
  reason @0 :Data;
}

struct ErrorReport {
  workerId @0 :Int32;
  code @1 :Int32;
  text @2 :Data;
  causes @3 :List(Data);
}

struct Metrics {
  workerId @0 :Int32;
  json @1 :Data;
}
