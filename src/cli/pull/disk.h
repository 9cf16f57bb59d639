// What is said when a disk is full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace pagefold {

// Bytes that may still be written there; none: the system does not say.
std::optional<uint64_t> room_in(const std::filesystem::path& folder);

// errno values, and words of other programs, that mean: no more can be written here.
bool means_full(int error);
bool says_full(std::string_view text);

// kResourceExhausted: trying again makes no room. needed: bytes that are still to be written.
Status full_disk(std::string_view what, const std::filesystem::path& folder,
                 std::optional<uint64_t> needed);

}  // namespace pagefold
