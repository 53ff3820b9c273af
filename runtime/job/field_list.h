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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::job {

// How an enumerator is spelled. An enum that is an option has one static list of these; those it leaves out cannot be
// chosen.
template <typename E>
struct EnumName {
  const char* name;
  E value;
};

// A choice seen as its names.
struct EnumField {
  void* target = nullptr;
  std::vector<const char*> names;
  std::function<size_t()> get;            // index of the name
  std::function<void(size_t index)> set;  // index < names.size()
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
    if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
      fields_.push_back({PathOf(key), comment, AutoListField{target}});
    } else {
      fields_.push_back({PathOf(key), comment, target});
    }
  }

  // `names` must be static.
  template <typename E, size_t kCount>
  void AddEnum(const char* key, E* target, const EnumName<E> (&names)[kCount], const char* comment) {
    EnumField field;
    field.target = target;
    for (const EnumName<E>& name : names) field.names.push_back(name.name);
    field.get = [target, &names] {
      return static_cast<size_t>(std::find_if(names, names + kCount, [&](auto& n) { return n.value == *target; }) -
                                 names);
    };
    field.set = [target, &names](size_t index) { *target = names[index].value; };
    fields_.push_back({PathOf(key), comment, std::move(field)});
  }

  // A text that must be one of `names`.
  void AddChoice(const char* key, std::string* target, const std::vector<const char*>& names, const char* comment);

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
