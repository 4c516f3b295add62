//===- Walk.h - One abstract run of a program ------------------------------------------------===//
// Runs all stages of a program together, at full size, with a fingerprint and a place for every value, and compares
// leaves and sinks with those of the one-device program.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_WALK_H
#define PC_LIB_PROOF_WALK_H

#include "Bytes.h"
#include "Place.h"
#include "Trace.h"
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
    int slot = -1;       ///< of a state: which operand of the optimizer it is
    bool operator==(const Leaf &other) const {
      return says == other.says && shape == other.shape && element == other.element && number == other.number;
    }
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
  llvm::DenseSet<uint64_t> states; ///< hashes of all values
};

/// What all phases share.
struct Shared {
  Key secret = Key::drawn();
  std::set<Where> places;
  const Where *intern(Where where) { return &*places.insert(std::move(where)).first; }
};

class Walk : StageRunner::Visitor {
public:
  /// Fills `facts`, and `trace`, if it is given. `reference`: of the one-device program, null for itself, and for a
  /// program of `parallel` ranks whose one-device program is not there.
  Walk(Shared &shared, Facts &facts, const Facts *reference, Trace *trace = nullptr, bool parallel = false)
      : shared(shared), values(shared.secret), placer(axis, !reference && !parallel), facts(facts),
        reference(reference), trace(trace), isStep(!reference && !parallel) {}

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
    mlir::Operation *arenaOp = nullptr;
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

  struct Shown {
    OutputOp op;
    std::string name;
    State state;
  };
  /// A call of a function, and what follows for others of the same values in other microbatches, added to other sums.
  struct Task {
    int microbatch = State::ofAny;
    llvm::SmallVector<State> in, out;
    std::vector<Shown> shown;
    llvm::SmallVector<bool> isSum;    ///< by argument: of other microbatches
    llvm::SmallVector<Range> ranges;  ///< of arguments, results, frame
    llvm::SmallVector<int> sameRange; ///< by range: the first one that is the same; others do not overlap
    llvm::SmallVector<bool> isLost;   ///< by argument: its bytes hold something else behind the call
    llvm::SmallVector<int> addedTo;   ///< by result: the argument to which `out` is added; -1: none
    bool isKnown = false;
    bool isLike(const Task &other) const;
  };

  // Stages.cpp
  bool runAll(mlir::ModuleOp module);
  bool begin(mlir::ModuleOp module);
  bool end();
  void arrive(int stage, MoveOpInterface move, mlir::Value input, int meeting) override;
  llvm::LogicalResult visit(int stage, mlir::Operation *op) override;
  bool overStages(Stage &stage, MoveOpInterface move, State &result, llvm::SmallVectorImpl<int> &from);
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
  bool start(Stage &stage, StartOp start);
  bool wait(Stage &stage, WaitOp wait);
  bool microbatch(Stage &stage, MicrobatchOp view);
  std::optional<State> element(mlir::Operation *op, const State &stack, int64_t number);

  // Tasks.cpp
  bool call(Stage &stage, CallOp call);
  bool runCalled(Stage &stage, CallOp call, const TaskFunction &called);
  std::optional<Task> taskOf(Stage &stage, CallOp call, const TaskFunction &called);
  void learn(Stage &stage, CallOp call, Task task, std::deque<Task> &known);
  bool repeat(Stage &stage, CallOp call, const Task &known, const Task &task);

  // Sinks.cpp
  bool leaf(Stage &stage, mlir::Operation *op);
  bool update(Stage &stage, UpdateOp update);
  bool output(Stage &stage, OutputOp output);
  bool show(const Shown &one);
  bool showAgain(llvm::ArrayRef<Shown> others, int microbatch);
  bool compareSinks();

  // Homes.cpp
  std::optional<Range> rangeOf(Stage &stage, mlir::Operation *op, mlir::Value value);
  bool holds(Stage &stage, const Range &range, const State &state) const;
  bool read(Stage &stage, mlir::Operation *op, mlir::Value value, const State &state);
  bool write(Stage &stage, mlir::Operation *op, mlir::Value value, const State &state);
  bool mayWrite(Stage &stage, mlir::Operation *op);
  bool holdLeaf(Stage &stage, mlir::Operation *leaf);
  bool isHeld(Stage &stage, mlir::Operation *leaf, const State &last);

  /// Notes what is wrong; false.
  bool refuse(mlir::Operation *op, const llvm::Twine &why, FaultKind fault = FaultKind::Place,
              mlir::Operation *other = nullptr);
  State stateOf(mlir::Value value) { return env.lookup(value); }
  /// The fingerprint among those of other microbatches.
  Point among(const State &state) const {
    return state.microbatch < 0 ? state.value : values.of(state.value, state.microbatch);
  }
  /// The same for bytes, of which a trace notes all; then true.
  bool clash(mlir::Operation *op, const llvm::Twine &why, mlir::Value value,
             std::pair<mlir::Operation *, mlir::Operation *> writer, mlir::Operation *other = nullptr);
  std::pair<mlir::Operation *, mlir::Operation *> oddMessage();
  mlir::Operation *oddMove();
  /// Remembers a value that `op` has made, of what it reads and, if traced, of what has other records.
  void set(mlir::Operation *op, mlir::Value result, State state, llvm::ArrayRef<int> from = {});
  void assign(mlir::Value value, const State &state) {
    env[value] = state;
    if (trace)
      trace->of[value] = state.made;
  }
  int record(mlir::Operation *op, const State &state, llvm::ArrayRef<int> from);

  struct Arrival {
    MoveOpInterface move;
    State state;
  };

  Shared &shared;
  Axis axis;
  Values values;
  Placer placer;
  Facts &facts;
  const Facts *reference;
  Trace *trace;
  bool isStep;        ///< the one-device program itself
  Failure wrongBytes; ///< traced: the first
  mlir::Operation *calling = nullptr;
  mlir::StringAttr stageAxis;
  AxisSet stageAxisSet = 0;
  std::vector<std::unique_ptr<Stage>> stages;
  TaskFunctions functions;
  llvm::DenseMap<mlir::Value, State> env;
  llvm::DenseMap<const TaskFunction *, std::deque<Task>> tasks;
  std::deque<Memo> memos;
  llvm::DenseMap<mlir::Operation *, const Memo *> memoOfLast; ///< of the last run of an op
  std::unordered_multimap<size_t, const Memo *> memosByHash;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<State>> underWay; ///< by start: the results
  std::vector<Shown> shown;                                             ///< outputs, by ops that ran
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
  llvm::DenseMap<std::pair<Point, int>, Element> stacks; ///< by element of a stack, which lies in its bytes
  std::map<std::pair<StageFlow, int64_t>, std::pair<State, mlir::Type>> mail;
};

/// What a program shows, in 16 digits each for leaves, updates and outputs, behind the seed that its fingerprints are
/// drawn by (Digest.cpp): equal for programs that compute the same.
std::string fingerprintOf(const Facts &facts, llvm::StringRef seed);
llvm::StringRef seedOf(llvm::StringRef fingerprint);
/// "its leaves and what it updates".
std::string whatDiffers(llvm::StringRef one, llvm::StringRef other);

} // namespace pc::proof

#endif
