#include "base/system.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace pagefold {
namespace {

// The number after `field` in a file of "Name:   123 kB" lines, in bytes; 0 if absent.
uint64_t kib_field(const char* path, const char* field) {
  FILE* f = std::fopen(path, "re");
  if (!f) return 0;
  char line[256];
  uint64_t kib = 0;
  const size_t n = std::strlen(field);
  while (std::fgets(line, sizeof line, f)) {
    unsigned long long value = 0;
    if (std::strncmp(line, field, n) == 0 && std::sscanf(line + n, ": %llu kB", &value) == 1) {
      kib = value;
      break;
    }
  }
  std::fclose(f);
  return kib * 1024;
}

// A single number; "max" or an absent file gives UINT64_MAX.
uint64_t number_file(const char* path) {
  FILE* f = std::fopen(path, "re");
  if (!f) return UINT64_MAX;
  unsigned long long value = 0;
  const bool ok = std::fscanf(f, "%llu", &value) == 1;
  std::fclose(f);
  return ok ? value : UINT64_MAX;
}

// Free pages that wait in the kernel's per-CPU lists. Since Linux 6.7 these lists may hold an
// eighth of the memory, and MemFree and MemAvailable leave them out until they drain, seconds
// later.
uint64_t per_cpu_free_bytes() {
  FILE* f = std::fopen("/proc/zoneinfo", "re");
  if (!f) return 0;
  char line[256];
  uint64_t pages = 0;
  while (std::fgets(line, sizeof line, f)) {
    unsigned long long n = 0;
    if (std::sscanf(line, " count: %llu", &n) == 1) pages += n;
  }
  std::fclose(f);
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

uint64_t available_memory() {
  const uint64_t known = kib_field("/proc/meminfo", "MemAvailable");
  const uint64_t machine = known == 0 ? 0 : known + per_cpu_free_bytes();
  const uint64_t limit = number_file("/sys/fs/cgroup/memory.max");
  if (limit == UINT64_MAX) return machine;
  const uint64_t used = number_file("/sys/fs/cgroup/memory.current");
  if (used == UINT64_MAX) return machine;
  return std::min(machine, limit > used ? limit - used : 0);
}

uint64_t total_memory() {
  const uint64_t machine = kib_field("/proc/meminfo", "MemTotal");
  const uint64_t limit = number_file("/sys/fs/cgroup/memory.max");
  return machine == 0 || limit == UINT64_MAX ? machine : std::min(machine, limit);
}

bool huge_pages_allowed() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  return std::getline(in, modes) && modes.find("[never]") == std::string::npos;
}

void return_free_memory() { ::malloc_trim(0); }

ResidentMemory resident_memory() {
  return {kib_field("/proc/self/status", "VmRSS"), kib_field("/proc/self/status", "RssAnon")};
}

}  // namespace pagefold
