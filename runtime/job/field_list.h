// One list of options drives parsing, help, serialising and command-line overrides.
//
// Every option struct names its fields once, in List(): key, address, comment. A FieldList collects them with their
// full paths ("rollout.temperature"); whoever reads, prints or checks options walks the list and needs to know no
// struct.
//
//   RunOptions options;
//   FieldList list = ListFields(options);                   // points into `options`, which must outlive it
//   for (const Field& field : list.fields()) ... std::visit(..., field.value)
#ifndef LOCKSTEP_RUNTIME_JOB_FIELD_LIST_H_
#define LOCKSTEP_RUNTIME_JOB_FIELD_LIST_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"

namespace lockstep::job {

// An enum seen as its names. Every enum that is an option has an overload `absl::Span<const char* const> EnumNames(E)`
// found by argument-dependent lookup, or passes its names: names[i] belongs to enumerator i.
struct EnumField {
  void* target = nullptr;
  int (*get)(const void* target) = nullptr;
  void (*set)(void* target, int value) = nullptr;
  absl::Span<const char* const> names;
};

// A list of whole numbers where an empty one is written `auto`.
struct AutoListField {
  std::vector<int32_t>* target = nullptr;
};

struct Field {
  std::string path;     // "rollout.temperature"
  const char* comment;  // why one would set it, units, and what is valid; one or two sentences
  std::variant<bool*, int32_t*, int64_t*, uint64_t*, float*, double*, std::string*, std::vector<std::string>*,
               std::map<std::string, double>*, AutoListField, EnumField>
      value;
};

class FieldList {
 public:
  struct Section {
    std::string path;
    const char* comment;
  };

  // Fields added from here on lie below "<name>.".
  void BeginSection(const char* name, const char* comment);

  template <typename T>
  void Add(const char* key, T* target, const char* comment) {
    if constexpr (std::is_enum_v<T>) {
      AddEnum(key, target, EnumNames(T{}), comment);
    } else if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
      fields_.push_back({PathOf(key), comment, AutoListField{target}});
    } else {
      fields_.push_back({PathOf(key), comment, target});
    }
  }

  template <typename E>
  void AddEnum(const char* key, E* target, absl::Span<const char* const> names, const char* comment) {
    EnumField field;
    field.target = target;
    field.get = [](const void* p) { return static_cast<int>(*static_cast<const E*>(p)); };
    field.set = [](void* p, int value) { *static_cast<E*>(p) = static_cast<E>(value); };
    field.names = names;
    fields_.push_back({PathOf(key), comment, field});
  }

  const std::vector<Field>& fields() const { return fields_; }
  const std::vector<Section>& sections() const { return sections_; }
  const Field* Find(std::string_view path) const;  // nullptr if there is none

 private:
  std::string PathOf(const char* key) const;

  std::vector<Field> fields_;
  std::vector<Section> sections_;
};

// The value as YAML spells it in flow style: `true`, `0.5`, `"a # b"`, `[a, b]`, `auto`. Reading it back gives the same
// bits.
std::string FieldText(const Field& field);

// "true or false", "a whole number", "one of error, warn, off", ...
std::string FieldTypeText(const Field& field);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_FIELD_LIST_H_
