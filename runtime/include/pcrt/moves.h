/* moves.h - the moves between ranks and between spaces of a rank's memory: a row each, which compiler, interpreter
 * and runtime all read.
 *
 * The compiler has an op <Kind>Op, "pc.<name>", for each (checked where pc/IR/Enums.h makes its enum of these rows).
 * What a move does is written in include/pc/IR/PCMoves.td and, for memory, at pcrt_move_desc in pcrt.h.
 */
#ifndef PCRT_MOVES_H
#define PCRT_MOVES_H

#include <stdint.h>

/** The state of a value on the ranks of a move's group. */
typedef enum pcrt_move_state {
  PCRT_STATE_WHOLE,   /* the same on every rank */
  PCRT_STATE_SPLIT,   /* every rank has its block of one dim, 1/n of the value */
  PCRT_STATE_PARTIAL, /* every rank has one addend, or one operand of a maximum */
  PCRT_STATE_ROOT,    /* on coordinate 0; undefined on the others */
} pcrt_move_state;

/** The pattern of a move's traffic. */
typedef enum pcrt_move_way {
  PCRT_WAY_LOCAL,  /* no traffic */
  PCRT_WAY_RING,   /* all ranks at once, in rings */
  PCRT_WAY_PAIRS,  /* between pairs of ranks */
  PCRT_WAY_ROOTED, /* between coordinate 0 and each other rank */
  PCRT_WAY_LINK,   /* between two spaces of each rank's memory */
} pcrt_move_way;

enum {
  PCRT_MOVE_IN_PLACE = 1, /* the result may lie on the operand */
  PCRT_MOVE_SHIFTS = 2,   /* has a shift, and perhaps a group `with`: may mean the block of another coordinate */
  PCRT_MOVE_UNPLACED = 4, /* in local programs only, because a placement cannot express it */
};

/* ROW(Kind, KIND, name, needs, makes, way, flags): PCRT_<KIND> takes a value in state `needs` and gives it in state
 * `makes`. The rows are in the order of their numbers in compiled programs; a new one goes to the end.
 * The states determine a rank's operand and result: a block if SPLIT, otherwise a tensor of the value's shape. A move
 * that needs PARTIAL reduces; one that makes PARTIAL gives addends of a sum; SPLIT, on either side, has a dim. */
/* clang-format off */
#define PCRT_MOVES(ROW)                                                                                                \
  ROW(AllReduce, ALL_REDUCE, "all_reduce", PARTIAL, WHOLE, RING, PCRT_MOVE_IN_PLACE)                                   \
  ROW(AllGather, ALL_GATHER, "all_gather", SPLIT, WHOLE, RING, 0)                                                      \
  ROW(ReduceScatter, REDUCE_SCATTER, "reduce_scatter", PARTIAL, SPLIT, RING, 0)                                        \
  ROW(AllToAll, ALL_TO_ALL, "all_to_all", SPLIT, SPLIT, PAIRS, 0)                                                      \
  ROW(Slice, SLICE, "slice", WHOLE, SPLIT, LOCAL, PCRT_MOVE_SHIFTS)           /* own block, or another's */            \
  ROW(Mask, MASK, "mask", WHOLE, PARTIAL, LOCAL, PCRT_MOVE_IN_PLACE)          /* zeros but on coordinate 0 */          \
  ROW(Pad, PAD, "pad", SPLIT, PARTIAL, LOCAL, 0)                              /* own block inside zeros */             \
  ROW(Broadcast, BROADCAST, "broadcast", ROOT, WHOLE, ROOTED, 0)                                                       \
  ROW(Scatter, SCATTER, "scatter", ROOT, SPLIT, ROOTED, 0)                                                             \
  ROW(Gather, GATHER, "gather", SPLIT, ROOT, ROOTED, 0)                                                                \
  ROW(Reduce, REDUCE, "reduce", PARTIAL, ROOT, ROOTED, 0)                                                              \
  ROW(Permute, PERMUTE, "permute", WHOLE, WHOLE, PAIRS, PCRT_MOVE_SHIFTS | PCRT_MOVE_UNPLACED) /* to another rank */   \
  ROW(Insert, INSERT, "insert", SPLIT, WHOLE, LOCAL, PCRT_MOVE_SHIFTS | PCRT_MOVE_UNPLACED) /* the rest stays */       \
  ROW(Carry, CARRY, "carry", WHOLE, WHOLE, LINK, 0)                                         /* to another space */
/* clang-format on */

/** Offsets from here on are in the arena in memory of the host, and on disk. They are passed to the runtime as
 * addresses that far after the device's arena. */
#define PCRT_HOST ((int64_t)1 << 55)
#define PCRT_DISK ((int64_t)1 << 56)

/** Flags of carries, in `reduction` of pcrt_move_desc. */
enum {
  PCRT_CARRY_OUT = 1,  /* from the device */
  PCRT_CARRY_HOST = 2, /* the other space is memory of the host, not the disk */
};

/** Buffers on disk begin at multiples of this, and take whole multiples of it. */
#define PCRT_DISK_BLOCK 4096

typedef enum pcrt_move_kind {
#define PCRT_ROW(Kind, KIND, ...) PCRT_##KIND,
  PCRT_MOVES(PCRT_ROW)
#undef PCRT_ROW
      PCRT_NUM_MOVE_KINDS
} pcrt_move_kind;

/** A row, for programs to read. */
typedef struct pcrt_move_facts {
  const char *name;
  pcrt_move_state needs, makes;
  pcrt_move_way way;
  int32_t flags;
} pcrt_move_facts;

/** The row of `kind`; null if the number is not a move. */
static inline const pcrt_move_facts *pcrt_facts_of_move(int32_t kind) {
  static const pcrt_move_facts rows[] = {
#define PCRT_ROW(Kind, KIND, NAME, NEEDS, MAKES, WAY, FLAGS)                                                           \
  {NAME, PCRT_STATE_##NEEDS, PCRT_STATE_##MAKES, PCRT_WAY_##WAY, FLAGS},
      PCRT_MOVES(PCRT_ROW)
#undef PCRT_ROW
  };
  return kind >= 0 && kind < PCRT_NUM_MOVE_KINDS ? &rows[kind] : (const pcrt_move_facts *)0;
}

/** The shape of a group's tensor: the sizes of pcrt_move_desc. `back` marks an all_to_all from extent2 to extent. */
typedef struct pcrt_move_shape {
  int64_t outer, extent, inner, middle, extent2;
  int32_t back;
} pcrt_move_shape;

/** The number of contiguous pieces of one member's block in the operand and in the result of a move between `n`. */
typedef struct pcrt_move_pieces {
  int64_t operand, result;
} pcrt_move_pieces;
static inline pcrt_move_pieces pcrt_pieces_of_move(int32_t kind, const pcrt_move_shape *shape, int64_t n) {
  const pcrt_move_facts *facts = pcrt_facts_of_move(kind);
  pcrt_move_pieces pieces = {1, 1};
  int fromBlocks = facts->needs == PCRT_STATE_SPLIT, toBlocks = facts->makes == PCRT_STATE_SPLIT;
  if (fromBlocks && toBlocks) {
    int64_t inner = shape->outer * (shape->extent / n) * shape->middle;
    pieces.operand = shape->back ? shape->outer : inner;
    pieces.result = shape->back ? inner : shape->outer;
  } else {
    pieces.operand = toBlocks ? shape->outer : 1;
    pieces.result = fromBlocks ? shape->outer : 1;
  }
  return pieces;
}

/** Bytes of scratch memory that a move with traffic needs for a communication library that takes every member's block
 * in one piece (NCCL): blocks of the operand are packed and those of the result unpacked, unless they are contiguous.
 */
static inline int64_t pcrt_staging_bytes_of_move(int32_t kind, const pcrt_move_shape *shape, int64_t n,
                                                 int64_t element_bytes) {
  pcrt_move_pieces pieces = pcrt_pieces_of_move(kind, shape, n);
  int64_t elements = shape->outer * shape->extent * shape->middle * shape->extent2 * shape->inner;
  if (pcrt_facts_of_move(kind)->way == PCRT_WAY_LOCAL)
    return 0;
  if (kind == PCRT_ALL_TO_ALL) /* a rank holds a block */
    elements /= n;
  return ((pieces.operand > 1) + (pieces.result > 1)) * elements * element_bytes;
}

#endif
