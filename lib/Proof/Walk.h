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
#include "llvm/Support/Allocator.h"

#include <set>
#include <unordered_map>

namespace pc::proof {

/// The key of a leaf. For a parameter, it is the parameter's name and null. For a state, it is the names of the state
/// and of its parameter. For any other leaf, it is the op and all its attributes.
using LeafName = std::pair<mlir::Attribute, mlir::Attribute>;
/// Returns text such as "'wte'" or "m of 'wte'".
std::string textOf(LeafName name);

/// The leaves, updates and outputs of a program, and its values.
struct Facts {
  /// The attributes of a leaf, without the place of this rank's block. Equal leaves read the same data.
  struct Leaf {
    llvm::SmallVector<mlir::Attribute> says; ///< all attributes except those of this rank's block
    llvm::SmallVector<int64_t> shape;        ///< the shape of the whole tensor
    mlir::Type element;
    int64_t number = -1; ///< for a parameter: the key of its random initial values
    int slot = -1;       ///< for a state: its operand number in the optimizer op
    Point value;
    bool operator==(const Leaf &other) const {
      return says == other.says && shape == other.shape && element == other.element && number == other.number;
    }
  };
  /// The value of an output, and how often the output occurs.
  struct Output {
    Point value;
    int64_t count = 0;
  };
  bool isReference = false;
  mlir::Attribute about; ///< the op pc.program
  llvm::MapVector<LeafName, Leaf> leaves;
  llvm::MapVector<LeafName, Point> updates;
  llvm::MapVector<mlir::StringAttr, llvm::SmallVector<Output, 1>> outputs;
  std::vector<uint64_t> states; ///< hashes of all values
  /// Sums whose addends are rounded to codes: fingerprint, axes and bits. They are equal in all phases after the step.
  std::set<std::tuple<uint64_t, uint64_t, AxisSet, int64_t>> rounded;
};

/// State that all phases share.
struct Shared {
  /// The secret must be new in every run. Otherwise, a wrong program could be made to have the same points as the right
  /// program.
  explicit Shared(Key secret = Key::drawn()) : values(secret) {}
  Values values;
  std::set<Where> places;
  size_t owners = 0; ///< the number of ops and blocks with values in the last program
  const Where *intern(Where where) { return &*places.insert(std::move(where)).first; }
};

/// One walk of one program. Result: `facts`, and whether they agree with the reference. If they do not, `failure` is
/// the first disagreement. With a trace, every value is recorded, so that Trace.cpp can find the cause. One object
/// walks once.
class Walk : StageRunner::Visitor {
public:
  /// Fills `facts`, and `trace` if it is given. `reference` has the facts of the one-device program. It is null if the
  /// program is itself the one-device program, or if the one-device program of a `parallel` program is missing.
  Walk(Shared &shared, Facts &facts, const Facts *reference, Trace *trace = nullptr, bool parallel = false)
      : shared(shared), values(shared.values), placer(axis, !reference && !parallel), facts(facts),
        reference(reference), trace(trace), isStep(!reference && !parallel) {}

  /// Whether the leaves, updates and outputs of the program equal those of the reference.
  bool run(mlir::ModuleOp module);
  Failure failure;

private:
  /// A parameter or state on a stage.
  struct Held {
    mlir::Operation *leaf = nullptr;
    State state;
    bool updated = false;
  };
  /// The program of a stage during a walk: its leaves, and the contents of its arena.
  struct Stage {
    mlir::ModuleOp module;
    mlir::func::FuncOp step;
    int64_t number = 0;
    llvm::DenseMap<mlir::Operation *, int64_t> positions; ///< positions of parameters, computed at the first request
    llvm::MapVector<LeafName, Held> held;
    Bytes bytes;
    llvm::MapVector<mlir::Operation *, State> last; ///< for each leaf, the contents of its bytes when the step ends
    int64_t arena = -1;                             ///< bytes; -1: values have no homes
    mlir::Operation *arenaOp = nullptr;
    bool inKernel = false;
    const std::map<int64_t, int64_t> *places = nullptr; ///< maps ranges of the current function to the arena
  };
  /// Whether a result (the second number) may be written over an operand (the first number).
  using Sharing = llvm::SmallDenseMap<std::pair<unsigned, unsigned>, bool, 4>;
  /// An analysis that many ops share: all ops like `example` whose operands are at the places `in`.
  struct Memo {
    mlir::Operation *example = nullptr;
    llvm::SmallVector<const Where *, 6> in;
    llvm::SmallVector<const Where *, 3> out;
    llvm::SmallVector<std::pair<unsigned, unsigned>, 2> same;
    Recipe recipe;
    double scale = 1;                                         ///< the scale of the results
    llvm::SmallVector<std::pair<unsigned, double>, 1> scales; ///< scales of operands
    mutable Sharing sharing;
  };

  /// An output that has run.
  struct Shown {
    OutputOp op;
    mlir::StringAttr name;
    State state;
  };
  /// A call of a function, and the effect of the call. Calls that have the same values in other microbatches, and add
  /// to other sums, share the effect.
  struct Task {
    int microbatch = State::ofAny;
    llvm::SmallVector<State> in, out;
    std::vector<Shown> shown;
    llvm::SmallVector<bool> isSum;    ///< for each argument, whether it is a sum over other microbatches
    llvm::SmallVector<int> sameRange; ///< `Ranges::same` of the call
    llvm::SmallVector<bool> isLost;   ///< for each argument, whether its bytes hold another value after the call
    llvm::SmallVector<int> addedTo;   ///< for each result, the argument to which `out` is added; -1: none
    bool isKnown = false;
    bool isLike(const Task &other) const;
  };
  /// The ranges of the arguments, the results and the frame of a call.
  struct Ranges {
    llvm::SmallVector<Range> list;
    llvm::SmallVector<int> same; ///< for each range, the first equal range
    bool overlap = false;        ///< some ranges overlap without being equal
  };
  /// A function, and its calls so far.
  struct Called {
    const TaskFunction *function = nullptr;
    bool calls = false;                        ///< it calls other functions
    llvm::SmallVector<bool> reads;             ///< by argument
    llvm::SmallVector<int64_t> bytes;          ///< sizes of arguments and results
    std::deque<Task> tasks;                    ///< all different
    std::unordered_map<size_t, Ranges> ranges; ///< by their hash
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
  Called &calledBy(CallOp call);
  bool runCalled(Stage &stage, CallOp call, const TaskFunction &called);
  const Ranges *rangesOf(Stage &stage, CallOp call, Called &called);
  bool readTask(CallOp call);
  void learn(Stage &stage, CallOp call, Task task, const Ranges &ranges, std::deque<Task> &known);
  bool repeat(Stage &stage, CallOp call, const Called &called, const Ranges &ranges, const Task &known);

  // Sinks.cpp
  bool leaf(Stage &stage, mlir::Operation *op);
  const Where *placeOf(mlir::Value value, PlaceAttr layout, mlir::DenseI64ArrayAttr global);
  int64_t positionOf(Stage &stage, ParameterOp parameter);
  bool update(Stage &stage, UpdateOp update);
  bool output(Stage &stage, OutputOp output);
  bool show(const Shown &one);
  /// Whether a choice of experts has the place that its op states. The runtime reads choices at that place and may
  /// replace them.
  bool isShownWhereItLies(TopKOp choice, const Where &where);
  bool showAgain(llvm::ArrayRef<Shown> others, int microbatch);
  bool compareSinks();

  // Homes.cpp
  int64_t elementOffsetOf(mlir::Value value) const {
    return isa<mlir::BlockArgument>(value) ? elementOffsets.lookup(value) : 0;
  }
  std::optional<Range> rangeOf(Stage &stage, mlir::Operation *op, mlir::Value value);
  bool holds(Stage &stage, const Range &range, const State &state) const;
  bool read(Stage &stage, mlir::Operation *op, mlir::Value value, const State &state) {
    return isIn(stage, op, value, state, rangeOf(stage, op, value));
  }
  bool write(Stage &stage, mlir::Operation *op, mlir::Value value, const State &state) {
    return put(stage, op, state, rangeOf(stage, op, value));
  }
  bool isIn(Stage &stage, mlir::Operation *op, mlir::Value value, const State &state, std::optional<Range> range);
  bool put(Stage &stage, mlir::Operation *op, const State &state, std::optional<Range> range);
  bool mayWrite(Stage &stage, mlir::Operation *op, Sharing &known);
  bool mayWrite(Stage &stage, mlir::Operation *op) { return mayWrite(stage, op, sharing[op]); }
  bool holdLeaf(Stage &stage, mlir::Operation *leaf);
  bool isHeld(Stage &stage, mlir::Operation *leaf, const State &last);

  /// Records the fault and returns false.
  bool refuse(mlir::Operation *op, const llvm::Twine &why, FaultKind fault = FaultKind::Place,
              mlir::Operation *other = nullptr);
  /// Returns the op or block that defines a value, and the value's number.
  static std::pair<void *, unsigned> ownerOf(mlir::Value value) {
    if (auto result = dyn_cast<mlir::OpResult>(value))
      return {result.getOwner(), result.getResultNumber()};
    auto argument = cast<mlir::BlockArgument>(value);
    return {argument.getOwner(), argument.getArgNumber()};
  }
  State stateOf(mlir::Value value) const {
    auto [owner, number] = ownerOf(value);
    const State *states = env.lookup(owner);
    return states ? states[number] : State();
  }
  /// Returns the fingerprint with the share of its microbatch.
  Point among(const State &state) const {
    return state.microbatch < 0 ? state.value : values.of(state.value, state.microbatch);
  }
  /// Refuses values that overlap in memory. With a trace, records the overlap and returns true instead, so that all
  /// overlaps are recorded.
  bool clash(mlir::Operation *op, const llvm::Twine &why, mlir::Value value,
             std::pair<mlir::Operation *, mlir::Operation *> writer, mlir::Operation *other = nullptr);
  std::pair<mlir::Operation *, mlir::Operation *> oddMessage();
  mlir::Operation *oddMove();
  /// Records a value that `op` has computed. With a trace, also records from which values it follows: those of `from`,
  /// or the op's operands if `from` is empty.
  void set(mlir::Operation *op, mlir::Value result, State state, llvm::ArrayRef<int> from = {});
  /// Sets the state of a value. The states of all values of an op or block are stored together.
  void assign(mlir::Value value, const State &state) {
    auto [owner, number] = ownerOf(value);
    State *&states = env[owner];
    if (!states)
      states = newStates(value);
    states[number] = state;
    if (trace)
      trace->of[value] = state.made;
  }
  /// Makes new states for all values of the owner of `value`.
  State *newStates(mlir::Value value) {
    auto argument = dyn_cast<mlir::BlockArgument>(value);
    size_t count = argument ? argument.getOwner()->getNumArguments() : value.getDefiningOp()->getNumResults();
    State *states = room.Allocate<State>(count);
    std::uninitialized_fill_n(states, count, State());
    return states;
  }
  /// Adds a record to the trace; returns its number, or -1 without a trace.
  int record(mlir::Operation *op, const State &state, llvm::ArrayRef<int> from);

  /// The value that a stage has contributed to a collective over stages.
  struct Arrival {
    MoveOpInterface move;
    State state;
  };

  Shared &shared;
  Axis axis;
  Values &values;
  Placer placer;
  Facts &facts;
  const Facts *reference;
  Trace *trace;
  bool isStep;        ///< the program is the one-device program itself
  Failure wrongBytes; ///< the first clash, if there is a trace
  mlir::Operation *calling = nullptr;
  mlir::StringAttr stageAxis;
  AxisSet stageAxisSet = 0;
  std::vector<std::unique_ptr<Stage>> stages;
  TaskFunctions functions;
  llvm::BumpPtrAllocator room;
  llvm::DenseMap<std::tuple<mlir::Type, mlir::Attribute, mlir::Attribute>, const Where *> placesOfLeaves;
  llvm::DenseMap<void *, State *> env; ///< for each op or block, the states of all its values
  std::deque<Called> called;
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, Called *> calledByName; ///< by stage and name
  Task task; ///< the current call and its ranges, kept to reuse their memory
  llvm::SmallVector<Range, 0> rangesAtHand;
  const Ranges noRanges;
  const State gone{values.named({"gone"})}; ///< the state of bytes that hold no value
  std::deque<Memo> memos;
  llvm::DenseMap<mlir::Operation *, const Memo *> memoOfLast; ///< for each op, the memo of its last run
  std::unordered_multimap<size_t, const Memo *> memosByHash;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<State>> underWay; ///< by start: the results
  std::vector<Shown> shown;                                             ///< the outputs of ops that ran
  int64_t started = 0;                                                  ///< the number of starts so far
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<State>> sums;     ///< for each accumulation, the sums so far
  llvm::DenseMap<mlir::Value, int64_t> elementOffsets; ///< the offset of a block argument in its stack, in bytes
  llvm::DenseMap<mlir::Operation *, Sharing> sharing;  ///< for each op without a memo
  llvm::DenseMap<int, llvm::SmallVector<Arrival>> meetings;
  llvm::DenseMap<mlir::Operation *, int> meetingOf;
  /// A stack, and the number of one of its elements.
  struct Element {
    State stack;
    int64_t number, count;
  };
  llvm::DenseMap<std::pair<Point, int>, Element>
      stacks; ///< keyed by an element of a stack, which shares the stack's bytes
  std::map<std::pair<StageFlow, int64_t>, std::pair<State, mlir::Type>> mail;
};

/// Returns the fingerprint of a program: the seed with which its points are drawn, then 16 digits each for leaves,
/// updates and outputs (Digest.cpp). Programs that compute the same have equal fingerprints.
std::string fingerprintOf(const Facts &facts, llvm::StringRef seed);
llvm::StringRef seedOf(llvm::StringRef fingerprint);
/// Returns text such as "its leaves and what it updates".
std::string whatDiffers(llvm::StringRef one, llvm::StringRef other);

} // namespace pc::proof

#endif
