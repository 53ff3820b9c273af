// Rows of the shared golden files: one JSON object a line.
#ifndef LOCKSTEP_TESTS_TEXT_GOLDEN_ROWS_H_
#define LOCKSTEP_TESTS_TEXT_GOLDEN_ROWS_H_

#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "tests/testing/shared_files.h"

namespace lockstep::testing {

// Throws for a line that is not JSON or has a key that the runner does not know.
inline std::vector<Json> ReadGoldenRows(const std::string& below_goldens,
                                        std::initializer_list<const char*> known_keys) {
  std::ifstream file(SharedPath("goldens/" + below_goldens));
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) {
    rows.push_back(Json::parse(line));
    for (const auto& [key, value] : rows.back().items()) {
      bool known = false;
      for (const char* name : known_keys) known = known || key == name;
      if (!known) throw std::runtime_error(below_goldens + ": unknown key '" + key + "'");
    }
  }
  return rows;
}

}  // namespace lockstep::testing

#endif  // LOCKSTEP_TESTS_TEXT_GOLDEN_ROWS_H_
