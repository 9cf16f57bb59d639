// The device folder of builds without CUDA: asking for it says so.
#include "backend/backend.h"

namespace pagefold {

Result<std::unique_ptr<Backend>> make_cuda_backend() {
  return unsupported("this build of pagefold has no CUDA: it runs on the CPU only");
}

}  // namespace pagefold
