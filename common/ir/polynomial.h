// Integer polynomials over symbols: the normal form of sums and products. Coefficients saturate.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ir/symbols.h"

namespace quench {

// Polynomials of more terms are not formed: see SymbolTable::Sum and Times.
inline constexpr size_t kMaxTerms = 64;

// Not negative. INT64_MIN has no magnitude in int64 and counts as 1, which divides everything.
int64_t Gcd(int64_t a, int64_t b);

// With the constant as the monomial without factors, unless it is 0.
std::vector<Monomial> AllTerms(const Polynomial& p);
void AddTerm(Polynomial& p, const Monomial& term);
Monomial MultiplyTerms(const Monomial& a, const Monomial& b);

// Greatest common divisor of `start`, every coefficient and the constant.
int64_t Content(const Polynomial& p, int64_t start);
// `divisor` divides the content.
void DivideAll(Polynomial& p, int64_t divisor);

// a / b when the division leaves no remainder, by long division.
std::optional<Polynomial> DivideExactly(Polynomial a, const Polynomial& b);
// Splits a into quotient * divisor + rest, term by term, with coefficients of rest in [0,
// coefficient), where the divisor's factors divide. The divisor's coefficient is positive.
void Split(const Polynomial& a, const Monomial& divisor, Polynomial* quotient, Polynomial* rest);

}  // namespace quench
