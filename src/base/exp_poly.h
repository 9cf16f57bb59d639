// Constants of the exponential of x <= 0 that every instruction set computes the same way:
//   n = round(x / ln 2), r = x - n ln 2 (ln 2 in two parts, the first exact times any n here),
//   e^x = 2^n (1 + r + r^2 P(r)), P of degree 4, fitted by reweighted least squares for the least
//   relative error on |r| <= ln 2 / 2 (3.1e-9, a twentieth of a float's half ulp).
#pragma once

namespace pagefold {

constexpr float kExpLowest = -110.0f;  // e^x rounds to zero from here on down, -inf included
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2High = 0x1.62ep-1f;
constexpr float kLn2Low = 0x1.0bfbe8p-15f;
constexpr float kExp2 = 0x1.fffffcp-2f;
constexpr float kExp3 = 0x1.55549p-3f;
constexpr float kExp4 = 0x1.5558f6p-5f;
constexpr float kExp5 = 0x1.123a76p-7f;
constexpr float kExp6 = 0x1.6a233ep-10f;

}  // namespace pagefold
