// Runs under mpirun (see CMakeLists.txt): the collectives over MPI, checked on every rank. The first argument chooses
// the scenario; the exit code and the printed lines are the verdict.
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/base/check.h"
#include "transport/mpi_collective.h"

namespace lockstep::transport {
namespace {

Deadline Soon() { return After(absl::Milliseconds(300)); }
Deadline Late() { return After(absl::Seconds(60)); }

void Ok(const absl::Status& status) {
  if (!status.ok()) fprintf(stderr, "%s\n", status.ToString().c_str());
  CHECK(status.ok());
}

void CheckOperations(Collective& group) {
  const int64_t rank = group.rank(), n = group.world_size();
  // 100,003 bytes: no multiple of anything; many fragments.
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100003}}) {
    std::vector<uint8_t> mine(size, static_cast<uint8_t>(rank + 1)), all(size * static_cast<size_t>(n));
    Ok(group.Wait(group.AllGather(mine, absl::MakeSpan(all)), Late()));
    for (size_t i = 0; i < all.size(); ++i) CHECK_EQ(static_cast<size_t>(all[i]), i / size + 1);

    std::vector<int64_t> values(size, (int64_t{1} << 50) + rank);
    Ok(group.Wait(group.AllReduceSum(absl::MakeSpan(values)), Late()));
    for (const int64_t value : values) CHECK_EQ(value, n * (int64_t{1} << 50) + n * (n - 1) / 2);

    values.assign(size, -rank);
    Ok(group.Wait(group.AllReduceMax(absl::MakeSpan(values)), Late()));
    for (const int64_t value : values) CHECK_EQ(value, 0);

    std::vector<int64_t> parts(size * static_cast<size_t>(n)), part(size);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<int64_t>(i / size) * 1000 + rank;
    Ok(group.Wait(group.ReduceScatterSum(parts, absl::MakeSpan(part)), Late()));
    for (const int64_t value : part) CHECK_EQ(value, n * rank * 1000 + n * (n - 1) / 2);

    std::vector<uint8_t> bytes(size, static_cast<uint8_t>(rank));
    Ok(group.Wait(group.Broadcast(static_cast<int>(n) - 1, absl::MakeSpan(bytes)), Late()));
    for (const uint8_t byte : bytes) CHECK_EQ(static_cast<int64_t>(byte), n - 1);
  }
  Ok(group.Wait(group.Barrier(), Late()));
}

void CheckOverlap(Collective& group) {
  int64_t a = 1, b = group.rank();
  const auto first = group.AllReduceSum(absl::MakeSpan(&a, 1));
  const auto second = group.AllReduceMax(absl::MakeSpan(&b, 1));
  Ok(group.Wait(second, Late()));
  Ok(group.Wait(first, Late()));
  CHECK_EQ(a, group.world_size());
  CHECK_EQ(b, group.world_size() - 1);
}

// A rank that waits a second for a late one must not burn the core meanwhile.
void CheckIdleWait(Collective& group) {
  if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  const clock_t start = clock();
  Ok(group.Wait(group.Barrier(), Late()));
  const double cpu_seconds = static_cast<double>(clock() - start) / CLOCKS_PER_SEC;
  CHECK_LT(cpu_seconds, 0.3);
}

void CheckErrors(Collective& group) {
  const int failing = group.world_size() - 1;
  const absl::Status mine = group.rank() == failing ? absl::DataLossError("one bit") : absl::OkStatus();
  const absl::Status joined = JoinStatus(group, mine, Late());
  CHECK(joined == absl::DataLossError("rank " + std::to_string(failing) + ": one bit"));
  std::string text = group.rank() == 0 ? "/tmp/somewhere" : "";
  Ok(BroadcastText(group, 0, text, Late()));
  CHECK(text == "/tmp/somewhere");
}

int Correct(MpiSession& session) {
  Collective& world = session.world();
  CheckOperations(world);
  CheckOverlap(world);
  CheckIdleWait(world);
  CheckErrors(world);
  const RankPlace& place = session.place();
  CHECK_EQ(place.num_nodes, 1);
  CHECK_EQ(place.node_rank, place.rank);
  CHECK_EQ(place.node_size, place.world_size);
  auto part = session.Split(place.rank % 2);
  Ok(part.status());
  CHECK_EQ((*part)->world_size(), (place.world_size + 1 - place.rank % 2) / 2);
  CheckOperations(**part);
  printf("rank %d of %d is content\n", place.rank, place.world_size);
  return 0;
}

// Rank 1 never comes: rank 0 must name it and what it did last.
int Silent(MpiSession& session) {
  Collective& world = session.world();
  Ok(world.Wait(world.Barrier(), Late()));
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  const absl::Status status = world.Wait(world.Barrier(), Soon());
  printf("%s\n", status.ToString().c_str());
  fflush(stdout);
  session.Abort(status.ok() ? 1 : 3);
}

// The ranks call different operations of equal size: all hear of both call sites.
int Mismatch(MpiSession& session) {
  Collective& world = session.world();
  int64_t value = 1;
  const absl::Status status = world.rank() == 1 ? world.Wait(world.AllReduceMax(absl::MakeSpan(&value, 1)), Late())
                                                : world.Wait(world.AllReduceSum(absl::MakeSpan(&value, 1)), Late());
  printf("%s\n", status.ToString().c_str());
  fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the other one speaks, too
  session.Abort(status.ok() ? 1 : 3);
}

// Seconds for a large sum, for people.
int Bench(MpiSession& session) {
  Collective& world = session.world();
  for (const size_t count : {size_t{1}, size_t{1} << 12, size_t{1} << 20, size_t{1} << 25}) {
    std::vector<int64_t> values(count, 1);
    Ok(world.Wait(world.AllReduceSum(absl::MakeSpan(values)), Late()));
    const auto start = std::chrono::steady_clock::now();
    Ok(world.Wait(world.AllReduceSum(absl::MakeSpan(values)), Late()));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (world.rank() == 0) {
      printf("AllReduceSum of %zu bytes: %.6f s, %.3f GB/s\n", count * 8, seconds.count(),
             static_cast<double>(count) * 8e-9 / seconds.count());
    }
  }
  return 0;
}

int Run(const std::string& scenario) {
  auto session = MpiSession::Start();
  Ok(session.status());
  if (scenario == "correct") return Correct(**session);
  if (scenario == "silent") return Silent(**session);
  if (scenario == "mismatch") return Mismatch(**session);
  if (scenario == "bench") return Bench(**session);
  return 2;
}

}  // namespace
}  // namespace lockstep::transport

int main(int argc, char** argv) { return lockstep::transport::Run(argc > 1 ? argv[1] : ""); }
