//===- Forms.h - Numbers of a kernel as linear forms, and their ranges over boxes ---------===//
// This file does not depend on IR. A form is linear in variables. A variable is a digit of the block's or the thread's
// number, the counter of a loop, or a value that is not linear in these (a quotient, a value from memory). A box gives
// the range of each digit and counter.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_COUNT_FORMS_H
#define PC_LIB_CODEGEN_COUNT_FORMS_H

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace pc {

using VariableId = unsigned;

/// The sum of a constant and of variables, each times a coefficient. `terms` has the coefficients by variable.
struct Form {
  int64_t constant = 0;
  std::map<VariableId, int64_t> terms = {};

  auto operator<=>(const Form &) const = default;
  bool isConstant() const { return terms.empty(); }
};

Form operator*(Form x, int64_t factor);
Form operator+(Form x, const Form &y);
Form operator-(const Form &x, const Form &y);

/// A variable is one of these kinds:
/// * Block and Thread: a digit of the block's or thread's number.
/// * Counter: the number of a loop's iteration.
/// * Quotient and Remainder: of the division of `a` by `divisor`.
/// * Least: the smaller of `a` and `b`.
/// * Data: a value that depends on memory, computed from `a` and `b`.
struct Variable {
  enum Kind { Block, Thread, Counter, Quotient, Remainder, Least, Data } kind;
  int64_t divisor = 0; ///< for digits and counters, a number that identifies them
  Form a = {}, b = {};
  const void *source = nullptr; ///< Data: the op name, the memory or the value from which it comes

  auto operator<=>(const Variable &) const = default;
  /// Whether boxes have a range for this variable.
  bool isDim() const { return kind <= Counter; }
};

/// The first and the last value of a range.
struct Extent {
  int64_t first = 0, last = 0;

  auto operator<=>(const Extent &) const = default;
  int64_t size() const { return last - first + 1; }
};

using Box = std::map<VariableId, Extent>; ///< the extents of digits and counters

/// The variables of a kernel. Equal variables have one id.
class Forms {
public:
  Form variable(const Variable &v);
  /// Returns a new variable, for the counter of one more loop.
  Form counter() { return variable({Variable::Counter, static_cast<int64_t>(variables.size())}); }
  Form data(const void *source, const Form &from, const Form &also = {}) {
    return variable({Variable::Data, 0, from, also, source});
  }
  /// Returns the quotient and the remainder of the division by a positive constant.
  std::pair<Form, Form> divide(const Form &form, int64_t divisor, const Box &box);
  Form least(const Form &x, const Form &y, const Box &box);

  const Variable &operator[](VariableId id) const { return variables[id]; }
  /// Returns the smallest and the largest value of a form that does not depend on data.
  Extent range(const Form &form, const Box &box) const;
  /// Whether the form depends on data.
  bool isData(const Form &form) const;
  /// Returns the digits and counters that the form depends on.
  std::set<VariableId> dims(const Form &form) const;
  /// Returns the digit or counter on which the form depends most in the box; std::nullopt if the form has only one
  /// value there.
  std::optional<VariableId> widest(const Form &form, const Box &box) const;

private:
  Extent range(VariableId id, const Box &box) const;

  std::vector<Variable> variables;
  std::map<Variable, VariableId> numbers;
};

} // namespace pc

#endif
