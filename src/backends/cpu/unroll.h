// Sums live in registers only when the loops over them are unrolled. Under sanitizers, whose checks
// would make minutes of compiling out of that, they need not.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define BLOCKSCALE_UNROLL(count)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BLOCKSCALE_UNROLL(count)
#endif
#endif
#ifndef BLOCKSCALE_UNROLL
#define BLOCKSCALE_PRAGMA(text) _Pragma(#text)
#define BLOCKSCALE_UNROLL(count) BLOCKSCALE_PRAGMA(GCC unroll count)
#endif
