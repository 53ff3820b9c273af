// One prompt of the stream.
#ifndef LOCKSTEP_RUNTIME_DATA_PROMPT_H_
#define LOCKSTEP_RUNTIME_DATA_PROMPT_H_

#include <cstdint>
#include <string>

namespace lockstep {

struct Prompt {
  int64_t ordinal = 0;  // global stream number, never repeats over epochs
  // The data row as it stands in the file (one JSON object): "messages" or "prompt", and the fields for the reward.
  std::string row_json;
  std::string location;  // "train.jsonl:17", for error messages
};

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_DATA_PROMPT_H_
