//===- Values.cpp - Fingerprints of the results of ops --------------------------------------===//
// Input: an op and the fingerprints of its operands. Result: fingerprints of its results. Identities that passes may
// use also hold for fingerprints: sums and scales use the arithmetic of the field, linear ops are linear maps, a sum of
// a product is one product, a product of transposed operands is a product of the operands, and rounding and decoding
// commute with moving elements. Any other op is a random function.
//===-----------------------------------------------------------------------------===//
#include "Values.h"

#include "pc/IR/BlockCodes.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// The text of an attribute is hashed only once.
uint64_t Values::hashOf(Attribute attribute) {
  auto [it, isNew] = hashes.try_emplace(attribute, 0);
  if (isNew) {
    std::string text;
    llvm::raw_string_ostream(text) << attribute;
    it->second = Key(secret).add(text).point().x;
  }
  return it->second;
}

Point Values::named(ArrayRef<StringRef> words) const {
  Key key(secret);
  for (StringRef word : words)
    key.add(word);
  return key.point();
}

static bool isBf16(Value value) { return cast<RankedTensorType>(value.getType()).getElementType().isBF16(); }

/// "a b, b c -> a c" as numbers of letters.
static void parse(StringRef spec, SmallVectorImpl<SmallVector<int>> &in, SmallVectorImpl<int> &out, size_t operands) {
  SmallVector<StringRef> letters, words;
  auto read = [&](StringRef text, SmallVectorImpl<int> &dims) {
    words.clear();
    text.split(words, ' ', -1, /*KeepEmpty=*/false);
    for (StringRef word : words) {
      auto it = llvm::find(letters, word);
      dims.push_back(static_cast<int>(it - letters.begin()));
      if (it == letters.end())
        letters.push_back(word);
    }
  };
  auto [left, right] = spec.split("->");
  in.resize(operands);
  SmallVector<StringRef> texts;
  left.split(texts, ',');
  for (auto [text, dims] : llvm::zip(texts, in))
    read(text, dims);
  read(right, out);
}

/// Letters are renamed in the order of their first use, so that einsums that differ only in letters have equal keys.
Key Values::keyOf(const Product &product) const {
  SmallVector<int> numbers;
  Key key = Key(secret).add("einsum");
  auto add = [&](ArrayRef<int> letters) {
    key.add(letters.size());
    for (int letter : letters) {
      auto it = llvm::find(numbers, letter);
      key.add(it - numbers.begin());
      if (it == numbers.end())
        numbers.push_back(letter);
    }
  };
  key.add(product.in.size());
  llvm::for_each(product.in, add);
  add(product.out);
  return key;
}

/// Returns true if every element of the result is an element of the operand.
static bool bringsElements(const Product &product) {
  return product.in.size() == 1 &&
         llvm::all_of(product.in[0], [&](int letter) { return llvm::is_contained(product.out, letter); });
}

/// The maps of a product. Elements may be rounded before or after they are moved, so the map of a product that only
/// moves elements commutes with rounding: both are diagonal. No other map is diagonal, except the map of a mask
/// (`route`).
static SmallVector<LinearMap, 3> mapsOf(const Product &product, const Key &key) {
  SmallVector<LinearMap, 3> maps;
  for (unsigned i = 0; i < product.in.size(); ++i)
    maps.push_back(Key(key).add(i).matrix());
  if (bringsElements(product))
    maps[0].b = maps[0].c = 0;
  return maps;
}

/// Returns true if `op` is the broadcast of a bias that was rounded for a library product whose result is bf16. The
/// libraries of CUDA devices require this, so the proof does not compare whether such a bias is rounded before the sum.
static bool isRoundedBias(Operation *op) {
  return isBf16(op->getOperand(0)) && !isBf16(op->getResult(0)) && !op->use_empty() &&
         llvm::all_of(op->getUsers(), [](Operation *user) { return isa<AddOp>(user) && isBf16(user->getResult(0)); });
}

/// Splits a routed einsum into a product without the mask and a product with the mask. The mask multiplies an operand
/// that has exactly the mask's dims; otherwise the result, if it has these dims among others; otherwise an operand that
/// has them; otherwise the first operand. The product rounds in the same way as without the mask.
void Values::route(Recipe &recipe) {
  Product bare = *recipe.product;
  SmallVector<int> mask = bare.in.pop_back_val();
  auto hasMask = [&](ArrayRef<int> dims) {
    return llvm::all_of(mask, [&](int letter) { return llvm::is_contained(dims, letter); });
  };
  Product masking;
  const auto *has = llvm::find(bare.in, mask);
  if (has == bare.in.end() && hasMask(bare.out)) {
    masking = {{bare.out, mask}, bare.out};
  } else {
    if (has == bare.in.end())
      has = llvm::find_if(bare.in, hasMask);
    recipe.masked = has == bare.in.end() ? 0 : static_cast<int>(has - bare.in.begin());
    SmallVector<int> &dims = bare.in[recipe.masked], all(dims);
    if (has == bare.in.end()) {
      all = mask;
      llvm::copy_if(dims, std::back_inserter(all), [&](int letter) { return !llvm::is_contained(mask, letter); });
    }
    masking = {{dims, mask}, all};
    dims = all;
  }
  Recipe by;
  by.kind = Recipe::Einsum;
  by.product = &products.emplace_back(std::move(masking));
  by.maps = mapsOf(*by.product, keyOf(*by.product));
  by.maps[0].b = by.maps[0].c = 0; // masked elements are 0 or unchanged, so they may be rounded before or after
  recipe.mask = std::make_shared<const Recipe>(std::move(by));
  recipe.product = &products.emplace_back(std::move(bare));
  recipe.key = keyOf(*recipe.product);
  recipe.maps = mapsOf(*recipe.product, recipe.key);
}

/// Adds to the key all attributes that decide the result. Einsums, sums and scales get their own kinds, so that the
/// identities of the file header hold.
Recipe Values::recipe(Operation *op, unsigned operands, int linear) {
  Recipe recipe;
  recipe.key = Key(secret).add(op->getName().getStringRef());
  recipe.operands = operands;
  for (StringAttr name : op->getName().getAttributeNames())
    if (name != "operandSegmentSizes")
      if (std::optional<Attribute> value = op->getInherentAttr(name); value && *value) {
        // Walk.cpp checks the start of a rank's block of a choice. Place.h checks the start of a block of dropped
        // elements.
        if (isa<TopKOp>(op) && (name == "global" || name == "layout"))
          continue;
        if (auto drop = dyn_cast<DropAttr>(*value))
          value = DropAttr::get(op->getContext(), drop.getThreshold());
        recipe.key.add(name.getValue()).add(hashOf(*value));
      }
  auto addFormat = [&](Value codes) { recipe.key.add(hashOf(TypeAttr::get(getElementTypeOrSelf(codes)))); };
  auto readBlock = [&](Value codes, Value scales) {
    auto typeOf = [](Value of) { return cast<RankedTensorType>(of.getType()); };
    addFormat(codes);
    return blockOf(typeOf(codes).getShape(), typeOf(scales).getShape()).value_or(SmallVector<int64_t>());
  };
  if (auto encode = dyn_cast<EncodeScaledOp>(op))
    addFormat(encode.getCodes());
  if (auto encode = dyn_cast<EncodeOp>(op))
    for (int64_t size : readBlock(encode.getCodes(), encode.getScales()))
      recipe.key.add(static_cast<uint64_t>(size));
  if (auto decode = dyn_cast<DecodeOp>(op)) {
    recipe.kind = Recipe::Codes;
    recipe.block = readBlock(decode.getCodes(), decode.getScales());
  }
  if (linear >= 0) {
    recipe.kind = Recipe::Linear;
    recipe.line = linear;
  }
  recipe.isPointwise = op->hasTrait<Pointwise>();
  if (isa<CopyOp, CastOp, MoveOpInterface>(op))
    recipe.kind = Recipe::Same;
  else if (auto stack = dyn_cast<StackOp>(op)) {
    recipe.kind = Recipe::Stack;
    recipe.line = static_cast<unsigned>(stack.getResult().getType().getDimSize(0));
  } else if (auto unstack = dyn_cast<UnstackOp>(op)) {
    recipe.kind = Recipe::Unstack;
    recipe.line = static_cast<unsigned>(unstack.getIndex());
  } else if (isa<EncodeAddendOp, DecodeSumOp>(op)) {
    // A sum of codes counts as the sum of the addends, so that plans with and without codes prove the same.
    auto encode = dyn_cast<EncodeAddendOp>(op);
    recipe.kind = encode ? Recipe::Encode : Recipe::Decode;
    recipe.key = Key(secret).add("addend").add(hashOf(encode ? encode.getWire() : cast<DecodeSumOp>(op).getWire()));
  } else if (isa<AddOp>(op))
    recipe.kind = Recipe::Add;
  else if (isa<SubOp>(op))
    recipe.kind = Recipe::Sub;
  else if (auto scale = dyn_cast<ScaleOp>(op)) {
    recipe.kind = Recipe::Scale;
    recipe.number = scale.getFactor().convertToDouble();
  } else if (auto einsum = dyn_cast<EinsumOp>(op)) {
    recipe.kind = Recipe::Einsum;
    const Product *&product = productOf[einsum.getSpecAttr()];
    if (!product || product->in.size() != operands) {
      Product &read = products.emplace_back();
      parse(einsum.getSpec(), read.in, read.out, operands);
      product = &read;
    }
    recipe.product = product;
    recipe.key = keyOf(*product);
    recipe.maps = mapsOf(*product, recipe.key);
    if (einsum.getMask())
      route(recipe);
  }
  recipe.unrounds = recipe.product && bringsElements(*recipe.product) && isRoundedBias(op);
  // An op that only moves elements does not change rounded ones.
  bool brings = recipe.product ? bringsElements(*recipe.product)
                               : isa<CastOp, ResizeOp, ColumnsOp, ReshapeOp, StackOp, UnstackOp>(op);
  bool keeps = isa<CopyOp, MoveOpInterface>(op) || (brings && isBf16(op->getOperand(0)));
  for (Value result : op->getResults())
    recipe.rounds.push_back(isBf16(result) && !keeps);
  return recipe;
}

/// The transposition that computed this value from the value `of`, or null.
const Product *Values::transposition(Point point, Point &of) const {
  auto known = made.find(point);
  if (known == made.end() || known->second.scale != 1 || known->second.product->in.size() != 1)
    return nullptr;
  const Product &product = *known->second.product;
  SmallVector<int> from(product.in[0]), to(product.out);
  llvm::sort(from);
  llvm::sort(to);
  if (from != to || std::adjacent_find(from.begin(), from.end()) != from.end())
    return nullptr;
  of = factors[known->second.operands];
  return &product;
}

/// An einsum of transposed operands is an einsum of the operands, with their letters in another order. Replaces the
/// points of such operands.
const Product &Values::withoutTranspositions(const Product &product, SmallVectorImpl<Point> &operands) {
  Product *other = nullptr;
  for (auto [i, operand] : llvm::enumerate(operands)) {
    const Product *turn = transposition(operand, operand);
    if (!turn || turn->out.size() != product.in[i].size())
      continue;
    if (!other)
      other = &products.emplace_back(product);
    for (auto [letter, from] : llvm::zip_equal(other->in[i], turn->in[0]))
      letter = product.in[i][llvm::find(turn->out, from) - turn->out.begin()];
  }
  return other ? *other : product;
}

/// Codes and scales that are transposed in the same way give the transposed value, as do transposed codes with one
/// scale. The result is rounded before it is transposed, so that readers find the transposition.
Point Values::decoded(const Recipe &recipe, unsigned number, ArrayRef<Point> operands) {
  SmallVector<Point, 2> points(operands);
  SmallVector<int64_t> block = recipe.block;
  Point codes, scales;
  const Product *turn = transposition(operands[0], codes), *same = transposition(operands[1], scales);
  const bool hasOneScale = block.empty();
  const bool turns =
      turn &&
      (hasOneScale || (same && turn->out.size() == block.size() && keyOf(*turn).point() == keyOf(*same).point()));
  if (turns && hasOneScale)
    points[0] = codes;
  else if (turns) {
    points = {codes, scales};
    for (auto [size, letter] : llvm::zip_equal(block, turn->in[0]))
      size = recipe.block[llvm::find(turn->out, letter) - turn->out.begin()];
  }
  Key key = Key(recipe.key).add(number);
  for (int64_t size : block)
    key.add(static_cast<uint64_t>(size));
  for (Point point : points)
    key.add(point);
  const Point value = recipe.rounds[number] ? rounding * key.point() : key.point();
  if (!turns)
    return value;
  Recipe moves;
  moves.kind = Recipe::Einsum;
  moves.product = turn;
  moves.maps = mapsOf(*turn, keyOf(*turn));
  return einsum(moves, {value});
}

/// A sum of a product is one product: "a b -> a" and then "a ->" is "a b ->".
Point Values::einsum(const Recipe &recipe, ArrayRef<Point> operands) {
  auto product = [&](const Product *product, ArrayRef<LinearMap> maps, ArrayRef<Point> points) {
    Point point{1, 1};
    for (auto [map, operand] : llvm::zip_equal(maps, points))
      point = timesEach(point, map * operand);
    if (made.try_emplace(point, Made{product, factors.size()}).second)
      llvm::append_range(factors, points);
    return point;
  };
  if (operands.size() > 1) {
    SmallVector<Point, 3> points(operands);
    const Product &bare = withoutTranspositions(*recipe.product, points);
    return product(&bare, &bare == recipe.product ? recipe.maps : mapsOf(bare, keyOf(bare)), points);
  }
  auto known = operands.empty() ? made.end() : made.find(operands[0]);
  if (known == made.end() ||
      !llvm::all_of(recipe.product->out, [&](int letter) { return llvm::is_contained(recipe.product->in[0], letter); }))
    return product(recipe.product, recipe.maps, operands);
  const auto [innerProduct, first, scale] = known->second;
  const Product &inner = *innerProduct;
  SmallVector<Point, 3> points(ArrayRef<Point>(factors).slice(first, inner.in.size()));
  Product &both = products.emplace_back();
  both.out = recipe.product->out;
  for (ArrayRef<int> letters : inner.in) {
    SmallVector<int> &renamed = both.in.emplace_back();
    for (int letter : letters) {
      const auto *at = llvm::find(inner.out, letter);
      renamed.push_back(at == inner.out.end() ? -1 - letter : recipe.product->in[0][at - inner.out.begin()]);
    }
  }
  // Two transpositions may cancel out.
  if (both.in.size() == 1 && both.in[0] == both.out && bringsElements(both))
    return times(points[0], scale);
  return times(product(&both, mapsOf(both, keyOf(both)), points), scale);
}

Point Values::times(Point point, double number) {
  Point result = scaled(point, number);
  if (auto it = made.find(point); number != 1 && it != made.end()) {
    Made known = it->second;
    known.scale *= number;
    made.try_emplace(result, known);
  }
  return result;
}

/// The point of a routed einsum: the mask multiplies the operand `recipe.masked`, or else the result.
Point Values::routed(const Recipe &recipe, unsigned number, ArrayRef<Point> operands) {
  SmallVector<Point, 3> inputs(operands.drop_back());
  auto masked = [&](Point x) { return einsum(*recipe.mask, {x, operands.back()}); };
  if (recipe.masked >= 0)
    inputs[recipe.masked] = masked(inputs[recipe.masked]);
  // A single operand that is only masked is not a product.
  bool isAlone = inputs.size() == 1 && recipe.product->in[0] == recipe.product->out;
  Point point = isAlone ? inputs[0] : einsum(recipe, inputs);
  if (recipe.rounds[number])
    point = rounding * point;
  return recipe.masked < 0 ? masked(point) : point;
}

/// A stack has a separate point, and the entries can be looked up by this point. Moves do not change it. If an op does
/// not work entry by entry, its result has a point that no value of a one-device program has.
Point Values::stackOf(ArrayRef<Point> entries) {
  Key key = Key(secret).add("stack");
  for (Point entry : entries)
    key.add(entry);
  Point point = key.point();
  stacks.try_emplace(point, entries);
  return point;
}

/// The einsum of one entry, if the first dim of the result is the first dim of some operands and occurs nowhere else.
const Recipe *Values::entryRecipe(const Recipe &recipe) {
  auto [it, isNew] = entryRecipes.try_emplace(recipe.product);
  if (!isNew)
    return it->second.get();
  Product entry = *recipe.product;
  auto dropFirst = [layer = entry.out.empty() ? -1 : entry.out[0]](SmallVector<int> &letters) {
    if (!letters.empty() && letters[0] == layer)
      letters.erase(letters.begin());
    return !llvm::is_contained(letters, layer);
  };
  if (entry.out.empty() || !llvm::all_of(entry.in, dropFirst) || !dropFirst(entry.out))
    return nullptr;
  it->second = std::make_unique<Recipe>(recipe);
  it->second->product = &products.emplace_back(std::move(entry));
  it->second->key = keyOf(*it->second->product);
  it->second->maps = mapsOf(*it->second->product, it->second->key);
  return it->second.get();
}

/// The stack of the results for each entry, if the op has stacks as operands and works on each entry separately.
std::optional<Point> Values::byEntry(const Recipe &recipe, unsigned number, ArrayRef<Point> operands) {
  bool isEinsum = recipe.kind == Recipe::Einsum && !recipe.mask;
  const Recipe *entry = isEinsum ? entryRecipe(recipe) : recipe.isPointwise ? &recipe : nullptr;
  SmallVector<ArrayRef<Point>, 3> lists;
  size_t entries = 0;
  for (auto [i, operand] : llvm::enumerate(operands)) {
    bool hasEntries = entry && (!isEinsum || entry->product->in[i].size() < recipe.product->in[i].size());
    auto it = hasEntries ? stacks.find(operand) : stacks.end();
    if (!entry || (hasEntries && it == stacks.end()) || (hasEntries && entries && entries != it->second.size()))
      return std::nullopt;
    lists.push_back(hasEntries ? ArrayRef<Point>(it->second) : ArrayRef<Point>());
    entries = std::max(entries, lists.back().size());
  }
  std::vector<Point> results;
  for (size_t i = 0; i < entries; ++i) {
    SmallVector<Point, 3> own(operands);
    for (auto [point, list] : llvm::zip_equal(own, lists))
      point = list.empty() ? point : list[i];
    results.push_back(result(*entry, number, own));
  }
  return entries ? std::optional(stackOf(results)) : std::nullopt;
}

/// Computes by the recipe's kind, then rounds the result if the op does.
Point Values::result(const Recipe &recipe, unsigned number, ArrayRef<Point> operands) {
  operands = operands.take_front(std::min<size_t>(recipe.operands, operands.size()));
  if (!stacks.empty())
    if (std::optional<Point> stack = byEntry(recipe, number, operands))
      return *stack;
  if (recipe.kind == Recipe::Codes)
    return decoded(recipe, number, operands);
  auto computed = [&]() -> Point {
    switch (recipe.kind) {
    case Recipe::Same:
      return operands[recipe.line];
    case Recipe::Add:
      return operands[0] + operands[1];
    case Recipe::Sub:
      return operands[0] - operands[1];
    case Recipe::Scale:
      return scaled(operands[0], recipe.number);
    case Recipe::Einsum:
      return recipe.mask ? routed(recipe, number, operands) : einsum(recipe, operands);
    case Recipe::Stack: {
      std::vector<Point> entries(operands.begin(), operands.end());
      entries.resize(recipe.line); // zeros
      return stackOf(entries);
    }
    case Recipe::Unstack:
      if (auto it = stacks.find(operands[0]); it != stacks.end() && recipe.line < it->second.size())
        return it->second[recipe.line];
      break;
    case Recipe::Encode:
    case Recipe::Decode: {
      const LinearMap code = recipe.key.matrix();
      return recipe.kind == Recipe::Encode ? LinearMap{code.a, 0, 0, code.d} * operands[0]
                                           : LinearMap{inverse(code.a), 0, 0, inverse(code.d)} * operands[0];
    }
    case Recipe::Codes:
    case Recipe::Linear:
    case Recipe::Function:
      break;
    }
    // All other recipes are a random function of their key, which includes the operands. A linear recipe is a random
    // matrix instead, so that it keeps sums and scales of its operand.
    Key key = Key(recipe.key).add(number);
    for (auto [i, operand] : llvm::enumerate(operands))
      if (recipe.kind != Recipe::Linear || i != recipe.line)
        key.add(operand);
    return recipe.kind == Recipe::Linear ? key.matrix() * operands[recipe.line] : key.point();
  };
  Point point = computed();
  if (recipe.mask)
    return point; // the inner sum is rounded
  return recipe.rounds[number] ? rounding * point : recipe.unrounds ? unrounding * point : point;
}
