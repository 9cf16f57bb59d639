// Facts about this process and machine, from /proc and the cgroup.
#pragma once

#include <cstdint>

namespace pagefold {

// Bytes that can be allocated without swapping: MemAvailable and the free pages of the per-CPU
// lists, and no more than the cgroup has left. 0: unknown.
uint64_t available_memory();
// Bytes of memory that there are at all: of the machine, and no more than the cgroup allows. 0:
// unknown.
uint64_t total_memory();
// Whether the kernel gives pages of 2 MiB to who asks for them.
bool huge_pages_allowed();
// Gives what the allocator holds unused back to the operating system: after work that took much
// more than usual. Takes milliseconds.
void return_free_memory();
// Resident bytes of this process: all, and the anonymous part (what it allocated itself; no file
// pages).
struct ResidentMemory {
  uint64_t total = 0, anonymous = 0;
};
ResidentMemory resident_memory();

}  // namespace pagefold
