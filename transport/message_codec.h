// Messages as bytes: one Cap'n Proto envelope each (messages.capnp), in the flat form of one message.
//
// Decode trusts nothing: the bytes may be cut short, random or from another version. It allocates at most a small
// multiple of their size. Errors: InvalidArgument (not a message: what is wrong and where), FailedPrecondition (another
// protocol version, or a kind of message this version does not know).
#ifndef LOCKSTEP_TRANSPORT_MESSAGE_CODEC_H_
#define LOCKSTEP_TRANSPORT_MESSAGE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transport/message.h"

namespace lockstep::transport {

// ResourceExhausted if the message needs more than `max_bytes`.
absl::StatusOr<std::string> Encode(const Message& message, size_t max_bytes);

// `bytes` need no alignment.
absl::StatusOr<Message> Decode(absl::Span<const uint8_t> bytes);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_MESSAGE_CODEC_H_
