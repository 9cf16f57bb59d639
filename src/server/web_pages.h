// The dashboard's files, which are part of the binary. They hold no data and need no key; what they
// show comes from /api/*, which does.
#pragma once

#include "server/http.h"

namespace pagefold {

// Answers "/" and "/ui/NAME"; false: the path is none of ours.
bool send_web_page(const HttpRequest& request, Responder& responder);

}  // namespace pagefold
