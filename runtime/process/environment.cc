#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/process/child_process.h"

namespace lockstep::process {
namespace {

// Open MPI and its parts, PMIx, Hydra (MPICH, Intel MPI). OMP_NUM_THREADS and its like are no launcher's and stay.
constexpr std::string_view kLauncherPrefixes[] = {"OMPI_", "PMIX_",  "PRTE_", "ORTE_",  "OPAL_",
                                                  "PMI_",  "HYDRA_", "MPI_",  "I_MPI_", "MPIR_"};

std::string_view NameOf(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool IsLaunchers(std::string_view name) {
  for (const std::string_view prefix : kLauncherPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> ChildEnvironment(const std::vector<std::string>& overrides) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = NameOf(*entry);
    bool keep = !IsLaunchers(name);
    for (const std::string& override : overrides) keep = keep && NameOf(override) != name;
    if (keep) result.emplace_back(*entry);
  }
  result.insert(result.end(), overrides.begin(), overrides.end());
  return result;
}

}  // namespace lockstep::process
