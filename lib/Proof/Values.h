//===- Values.h - Fingerprints of the results of ops ----------------------------------------===//
// A Recipe is read from an op once; `Values::result` then applies it whenever the op runs. Fingerprints do not depend
// on the place of a value (Where.h), so a value has one fingerprint on all ranks and for all microbatches.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_VALUES_H
#define PC_LIB_PROOF_VALUES_H

#include "Fingerprint.h"

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <deque>
#include <memory>
#include <unordered_map>

namespace pc::proof {

/// An einsum: the letters, as numbers, of each operand and of the result.
struct Product {
  llvm::SmallVector<llvm::SmallVector<int>> in;
  llvm::SmallVector<int> out;
};

/// Says how the result's fingerprint follows from those of the operands. A recipe is computed once for all runs of an
/// op.
struct Recipe {
  /// How the fingerprint of the result follows from the operands.
  enum Kind {
    Same,    ///< the fingerprint of operand `line`
    Add,     ///< the sum of the first two operands
    Sub,     ///< the difference of the first two operands
    Scale,   ///< operand 0 times `number`
    Einsum,  ///< the einsum `product`
    Linear,  ///< a map of operand `line`, which depends on all other operands
    Stack,   ///< the operands as entries of a stack of `line` entries
    Unstack, ///< entry `line` of a stack
    Encode,  ///< operand 0 times a diagonal matrix that the code decides
    Decode,  ///< operand 0 times the inverse of this matrix
    Codes,   ///< a random function of both operands, which commutes with transpositions of both
    Function ///< a random function of all operands
  } kind = Function;
  unsigned line = 0, operands = 0; ///< `operands`: without the starts of blocks
  double number = 0;
  Key key;                              ///< the key of the op and its attributes
  llvm::SmallVector<bool, 3> rounds;    ///< for each result, whether it is rounded to bf16
  bool isPointwise = false;             ///< an element of the result needs only the same element of the operands
  bool unrounds = false;                ///< the result is the same as for an unrounded operand
  const Product *product = nullptr;     ///< Einsum
  llvm::SmallVector<LinearMap, 3> maps; ///< Einsum: one per operand
  llvm::SmallVector<int64_t> block;     ///< pc.decode: the sizes of a block
  std::shared_ptr<const Recipe> mask;   ///< routed Einsum: the product of `masked` and the mask
  int masked = -1;                      ///< the operand that the mask multiplies; -1: it multiplies the result
};

/// Draws fingerprints with a secret key. State: the products so far, so that a sum of parts of a product is recognized
/// as one product, and a random share for each microbatch. The same calls in any order give the same fingerprints.
class Values {
public:
  /// `secret` is the key with which fingerprints are drawn.
  explicit Values(Key secret) : secret(secret), rounding(Key(secret).add("round").matrix()) {
    rounding.b = rounding.c = 0;
    unrounding = {inverse(rounding.a), 0, 0, inverse(rounding.d)};
  }

  /// The first `operands` operands are values. The others are starts of blocks, which Place.h checks. `linear` is the
  /// operand in which the op is linear, or -1.
  Recipe recipe(mlir::Operation *op, unsigned operands, int linear);
  /// Returns the point of result `number` of the op.
  Point result(const Recipe &recipe, unsigned number, llvm::ArrayRef<Point> operands);
  /// Returns the point of a value with this name.
  Point named(llvm::ArrayRef<llvm::StringRef> words) const;
  Point constant(double number) const { return scaled(named({"one"}), number); }
  /// Returns `point` times `number`. If `point` is a product, a sum of scaled parts is still recognized as a (scaled)
  /// sum of that product.
  Point times(Point point, double number);
  /// Returns the point that all elements of a stack share. A stack holds one value per microbatch.
  Point element(Point stack) const { return Key(secret).add("microbatch").add(stack).point(); }
  /// Returns the value of one particular microbatch from the value of any microbatch.
  Point of(Point any, int microbatch) {
    uint64_t share = shareOf(microbatch).once;
    return timesEach(any, {share, share});
  }
  /// Returns the value of any microbatch from the value of one among several.
  Point any(Point of, int microbatch) {
    uint64_t back = shareOf(microbatch).back;
    return timesEach(of, {back, back});
  }

private:
  /// A value that is a product. An einsum whose only operand is a product counts as a product of the same factors.
  struct Made {
    const Product *product;
    size_t operands;  ///< the index in `factors` of the first one
    double scale = 1; ///< the number by which the product is multiplied
  };
  /// The factor of a microbatch's value among those of several microbatches, and its inverse.
  struct Share {
    uint64_t once = 0, back = 0;
  };
  const Share &shareOf(int microbatch) {
    Share &share = shares[microbatch];
    if (!share.once) {
      share.once = std::max<uint64_t>(1, Key(secret).add("share").add(microbatch).point().x);
      share.back = inverse(share.once);
    }
    return share;
  }
  void route(Recipe &recipe);
  Key keyOf(const Product &product) const;
  Point stackOf(llvm::ArrayRef<Point> entries);
  const Recipe *entryRecipe(const Recipe &recipe);
  std::optional<Point> byEntry(const Recipe &recipe, unsigned number, llvm::ArrayRef<Point> operands);
  Point einsum(const Recipe &recipe, llvm::ArrayRef<Point> operands);
  const Product *transposition(Point point, Point &of) const;
  const Product &withoutTranspositions(const Product &product, llvm::SmallVectorImpl<Point> &operands);
  Point decoded(const Recipe &recipe, unsigned number, llvm::ArrayRef<Point> operands);
  Point routed(const Recipe &recipe, unsigned number, llvm::ArrayRef<Point> operands);
  uint64_t hashOf(mlir::Attribute attribute);

  Key secret;
  LinearMap rounding, unrounding;
  std::deque<Product> products;
  llvm::DenseMap<mlir::Attribute, const Product *> productOf;            ///< by spec
  llvm::DenseMap<Point, Made> made;                                      ///< values that are products, and these
  llvm::DenseMap<Point, std::vector<Point>> stacks;                      ///< stacks, and their entries
  llvm::DenseMap<const Product *, std::unique_ptr<Recipe>> entryRecipes; ///< null: not computed entry by entry
  std::vector<Point> factors;
  llvm::DenseMap<mlir::Attribute, uint64_t> hashes;
  std::unordered_map<int, Share> shares; ///< by microbatch
};

} // namespace pc::proof

#endif
