//===- Forms.cpp - Numbers of a kernel as linear forms, and their ranges over boxes -------===//
// Interval arithmetic on linear forms of loop variables and thread numbers. Quotients, remainders and minima become
// separate variables, unless their value over the box is a linear form. Ranges are bounds: they are exact for one
// variable, and may be too wide if a variable occurs twice.
//===-----------------------------------------------------------------------------===//
#include "Forms.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace pc;

/// A factor of 0 removes all terms, because a form has no terms with coefficient 0.
Form pc::operator*(Form x, int64_t factor) {
  if (!factor)
    return {};
  x.constant *= factor;
  for (auto &[variable, coefficient] : x.terms)
    coefficient *= factor;
  return x;
}

/// Terms whose coefficients add up to 0 are removed.
Form pc::operator+(Form x, const Form &y) {
  x.constant += y.constant;
  for (auto [variable, coefficient] : y.terms)
    if (!(x.terms[variable] += coefficient))
      x.terms.erase(variable);
  return x;
}

Form pc::operator-(const Form &x, const Form &y) { return x + y * -1; }

Form Forms::variable(const Variable &v) {
  auto [it, inserted] = numbers.try_emplace(v, variables.size());
  if (inserted)
    variables.push_back(v);
  return {0, {{it->second, 1}}};
}

/// Terms whose coefficients are multiples of the divisor go into the quotient. If the rest is between 0 and the divisor
/// in the box, nothing else is needed; otherwise both results get new variables.
std::pair<Form, Form> Forms::divide(const Form &form, int64_t divisor, const Box &box) {
  Form quotient, rest;
  for (auto [id, coefficient] : form.terms)
    (coefficient % divisor ? rest : quotient).terms[id] = coefficient % divisor ? coefficient : coefficient / divisor;
  quotient.constant = llvm::divideFloorSigned(form.constant, divisor);
  rest.constant = form.constant - quotient.constant * divisor;
  Extent values = range(rest, box);
  // If the rest stays within one period over the box, the quotient is a constant and no variable is needed.
  int64_t first = llvm::divideFloorSigned(values.first, divisor);
  if (first == llvm::divideFloorSigned(values.last, divisor))
    return {quotient + Form{first}, rest - Form{first * divisor}};
  return {quotient + variable({Variable::Quotient, divisor, rest}), variable({Variable::Remainder, divisor, rest})};
}

/// One of the two forms, if it is the smaller one in the whole box; otherwise a new variable.
Form Forms::least(const Form &x, const Form &y, const Box &box) {
  if (isData(x) || isData(y))
    return data(nullptr, x, y);
  Extent values = range(x - y, box);
  return values.last <= 0 ? x : values.first >= 0 ? y : variable({Variable::Least, 0, x, y});
}

/// Adds the extents of all terms, each multiplied by its coefficient.
Extent Forms::range(const Form &form, const Box &box) const {
  Extent sum{form.constant, form.constant};
  for (auto [id, coefficient] : form.terms) {
    Extent values = range(id, box);
    sum.first += coefficient * (coefficient < 0 ? values.last : values.first);
    sum.last += coefficient * (coefficient < 0 ? values.first : values.last);
  }
  return sum;
}

/// A derived variable has the extent that follows from its operands.
Extent Forms::range(VariableId id, const Box &box) const {
  const Variable &v = variables[id];
  if (v.isDim())
    return box.at(id);
  Extent a = range(v.a, box), b = range(v.b, box);
  switch (v.kind) {
  case Variable::Quotient:
    return {llvm::divideFloorSigned(a.first, v.divisor), llvm::divideFloorSigned(a.last, v.divisor)};
  case Variable::Remainder: {
    int64_t period = llvm::divideFloorSigned(a.first, v.divisor);
    if (period == llvm::divideFloorSigned(a.last, v.divisor))
      return {a.first - period * v.divisor, a.last - period * v.divisor};
    return {0, v.divisor - 1};
  }
  default:
    return {std::min(a.first, b.first), std::min(a.last, b.last)};
  }
}

bool Forms::isData(const Form &form) const {
  return llvm::any_of(form.terms, [&](const auto &term) {
    const Variable &v = variables[term.first];
    return v.kind == Variable::Data || isData(v.a) || isData(v.b);
  });
}

/// Also finds the dims that derived variables depend on.
std::set<VariableId> Forms::dims(const Form &form) const {
  std::set<VariableId> found;
  for (auto [id, coefficient] : form.terms) {
    if (variables[id].isDim())
      found.insert(id);
    found.merge(dims(variables[id].a));
    found.merge(dims(variables[id].b));
  }
  return found;
}

/// The dim whose range changes the form the most. Dividing a box along it narrows the form the most.
std::optional<VariableId> Forms::widest(const Form &form, const Box &box) const {
  std::optional<VariableId> found;
  int64_t most = 0;
  for (VariableId dim : dims(form)) {
    auto direct = form.terms.find(dim);
    int64_t weight = direct == form.terms.end() ? 1 : std::abs(direct->second);
    if (int64_t spread = weight * (box.at(dim).size() - 1); spread > most) {
      most = spread;
      found = dim;
    }
  }
  return found;
}
