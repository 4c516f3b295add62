//===- Walk.h - One abstract run of a program ------------------------------------------------===//
// Runs all stages of a program together, at full size, with a fingerprint and a place for every value, and compares
// leaves and sinks with those of the one-device program.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_WALK_H
#define PC_LIB_PROOF_WALK_H

#include "Bytes.h"
#include "Place.h"
#include "Values.h"

#include "pc/IR/Calls.h"
#include "pc/IR/StageRunner.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

#include <set>
#include <unordered_map>

namespace pc::proof {

/// What a program is to the runtime, and which values are in it.
struct Facts {
  struct Leaf {
    llvm::SmallVector<mlir::Attribute> says; ///< all attributes but where this rank's block lies
    llvm::SmallVector<int64_t> shape;        ///< of the whole tensor
    mlir::Type element;
    int64_t number = -1; ///< of a parameter: by which its elements are drawn
    bool operator==(const Leaf &) const = default;
  };
  struct Output {
    Point value;
    int64_t count = 0;
  };
  bool isReference = false;
  mlir::Attribute about; ///< pc.program
  std::map<std::string, Leaf> leaves;
  std::map<std::string, Point> updates;
  std::map<std::string, llvm::SmallVector<Output, 1>> outputs;
  llvm::DenseSet<uint64_t> states; ///< hashes of all values; of the reference without where they lie
};

/// What all phases share.
struct Shared {
  Key secret = Key::drawn();
  std::set<Where> places;
  const Where *intern(Where where) { return &*places.insert(std::move(where)).first; }
};

/// Why a program is not proved.
struct Failure {
  mlir::Operation *op = nullptr;     ///< where it shows
  mlir::Operation *begins = nullptr; ///< the first op behind which a value is none that the phase before has; or null
  std::string why;
};

class Walk : StageRunner::Visitor {
public:
  /// Fills `facts`. `reference`: of the one-device program, null for itself, and for a program of `parallel` ranks
  /// whose one-device program is not there. `before`: of the phase before; with it a failure is traced.
  Walk(Shared &shared, Facts &facts, const Facts *reference, const Facts *before, bool parallel = false)
      : shared(shared), values(shared.secret), placer(axis, !reference && !parallel), facts(facts),
        reference(reference), before(before), isStep(!reference && !parallel) {}

  /// Whether all that the program shows is what the reference shows.
  bool run(mlir::ModuleOp module);
  Failure failure;

private:
  /// A parameter or state on a stage.
  struct Held {
    mlir::Operation *leaf = nullptr;
    State state;
    bool updated = false;
  };
  struct Stage {
    mlir::ModuleOp module;
    mlir::func::FuncOp step;
    int64_t number = 0;
    llvm::DenseMap<mlir::Operation *, int64_t> positions; ///< of parameters
    std::map<std::string, Held> held;
    Bytes bytes;
    llvm::MapVector<mlir::Operation *, State> last; ///< by leaf: what its bytes hold when the step ends
    int64_t arena = -1;                             ///< bytes; -1: values have no homes
    bool inKernel = false;
    const std::map<int64_t, int64_t> *places = nullptr; ///< of the ranges of a function that runs: in the arena
  };
  /// What follows for ops like `example` whose operands lie so.
  struct Memo {
    mlir::Operation *example = nullptr;
    llvm::SmallVector<const Where *, 6> in;
    llvm::SmallVector<const Where *, 3> out;
    llvm::SmallVector<std::pair<unsigned, unsigned>, 2> same;
    Recipe recipe;
  };

  // Stages.cpp
  bool begin(mlir::ModuleOp module);
  bool end();
  void arrive(int stage, MoveOpInterface move, mlir::Value input, int meeting) override;
  llvm::LogicalResult visit(int stage, mlir::Operation *op) override;
  bool overStages(Stage &stage, MoveOpInterface move, State &result);
  bool send(Stage &stage, SendOp send);
  bool receive(Stage &stage, ReceiveOp receive);

  // Walk.cpp
  bool runOp(Stage &stage, mlir::Operation *op);
  bool runBlock(Stage &stage, mlir::Block &block);
  bool compute(Stage &stage, mlir::Operation *op);
  const Memo *memoOf(mlir::Operation *op, llvm::ArrayRef<const Where *> in);
  bool accumulate(Stage &stage, AccumulateOp accumulate);
  bool addToSum(Stage &stage, mlir::OpOperand &yielded);
  bool fusion(Stage &stage, FusionOp fusion);
  bool call(Stage &stage, CallOp call);
  bool start(Stage &stage, StartOp start);
  bool wait(Stage &stage, WaitOp wait);
  bool microbatch(Stage &stage, MicrobatchOp view);
  std::optional<State> element(mlir::Operation *op, const State &stack, int64_t number);

  // Sinks.cpp
  bool leaf(Stage &stage, mlir::Operation *op);
  bool update(Stage &stage, UpdateOp update);
  bool output(Stage &stage, OutputOp output);
  bool compareSinks();

  // Homes.cpp
  std::optional<Range> rangeOf(Stage &stage, mlir::Operation *op, mlir::Value value);
  bool read(Stage &stage, mlir::Operation *op, mlir::Value value, const State &state);
  bool write(Stage &stage, mlir::Operation *op, mlir::Value value, const State &state);
  bool mayWrite(Stage &stage, mlir::Operation *op);
  bool holdLeaf(Stage &stage, mlir::Operation *leaf);
  bool isHeld(Stage &stage, mlir::Operation *leaf, const State &last);

  /// Notes what is wrong; false.
  bool refuse(mlir::Operation *op, const llvm::Twine &why);
  State stateOf(mlir::Value value) { return env.lookup(value); }
  /// Remembers a value that `op` has made, of others.
  void set(mlir::Operation *op, mlir::Value result, State state, mlir::ValueRange from);
  void set(mlir::Operation *op, mlir::Value result, State state) { set(op, result, state, op->getOperands()); }
  mlir::Operation *firstStrange(mlir::Operation *op);

  struct Arrival {
    MoveOpInterface move;
    State state;
  };
  /// Who has made a value that the phase before does not have, of which others of that kind.
  struct Maker {
    mlir::Operation *op;
    llvm::SmallVector<int, 2> from;
  };

  Shared &shared;
  Axis axis;
  Values values;
  Placer placer;
  Facts &facts;
  const Facts *reference, *before;
  bool isStep; ///< the one-device program itself
  mlir::StringAttr stageAxis;
  AxisSet stageAxisSet = 0;
  std::vector<std::unique_ptr<Stage>> stages;
  TaskFunctions functions;
  llvm::DenseMap<mlir::Value, State> env;
  std::deque<Memo> memos;
  llvm::DenseMap<mlir::Operation *, const Memo *> memoOfLast; ///< of the last run of an op
  std::unordered_multimap<size_t, const Memo *> memosByHash;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<State>> underWay; ///< by start: the results
  int64_t started = 0;                                                  ///< how many moves under way there have been
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<State>> sums;     ///< by accumulation: so far
  llvm::DenseMap<mlir::Value, int64_t> elementOffsets;                  ///< bytes of a block argument in its stack
  llvm::DenseMap<std::tuple<mlir::Operation *, unsigned, unsigned>, bool> sharing; ///< op, operand, result
  llvm::DenseMap<int, llvm::SmallVector<Arrival>> meetings;
  llvm::DenseMap<mlir::Operation *, int> meetingOf;
  struct Element {
    State stack;
    int64_t number, count;
  };
  llvm::DenseMap<Point, Element> stacks; ///< by element of a stack of microbatches, which lies in its bytes
  std::map<std::pair<StageFlow, int64_t>, std::pair<State, mlir::Type>> mail;
  std::vector<Maker> makers;
};

/// What a program shows, in 16 digits each for leaves, updates and outputs, behind the seed that its fingerprints are
/// drawn by (Digest.cpp): equal for programs that compute the same.
std::string fingerprintOf(const Facts &facts, llvm::StringRef seed);
llvm::StringRef seedOf(llvm::StringRef fingerprint);
/// "its leaves and what it updates".
std::string whatDiffers(llvm::StringRef one, llvm::StringRef other);

} // namespace pc::proof

#endif
