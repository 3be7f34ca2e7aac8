/* The native core: what `hocket.fabric` does on the board, without the interpreter in between.
 *
 *   words.c       the board's words as a Python sequence, with the ordering that plain Python cannot give
 *   arguments.c   the memory behind the caller's arrays
 *   plan.c        an agreed operation, as one member carries it out
 *   advance.c     the program of one operation: the same steps in the same order as `hocket.fabric.program`
 *   direct.c      the program of a large one whose members read one another's memory
 *   seat.c        a member's place at a board, for Python
 *   kernels.c     reductions
 *
 * Everything here may meet members that run the Python program on the same board: the two obey the same rules, and the
 * same tests run on both. CPython's limited API only.
 */
#ifndef HOCKET_CORE_H
#define HOCKET_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

typedef _Atomic uint64_t hk_word;

/* Indices of words: those of `hocket.fabric.board`, which a test compares with these. */
enum { HK_CONTESTED = 3, HK_RESULT = 4, HK_BRIDGE_READ = 5 };
enum { HK_TURN_NS = 10000000 };
enum { HK_LINE_WORDS = 16, HK_COUNT_BITS = 24, HK_PAGE_NBYTES = 4096 };
enum {
    HK_SIGNED,
    HK_POSTED,
    HK_READ,
    HK_REDUCED,
    HK_SIGNED_AT,
    HK_CALL_EVEN,
    HK_CALL_ODD,
    HK_OFFER_EVEN, /* where others may read what the member contributes; HK_NOTHING: it contributes nothing */
    HK_OFFER_ODD,  /* and 0: they may not */
    HK_COOKIE_AT,
    HK_COOKIE,
};
enum { HK_MEMBERS = 256 }; /* largest group that is carried out here: its inputs are listed on the stack */
enum { HK_NOTHING = 1, HK_DIRECT_DONE = 2 };
enum { HK_PIECE_NBYTES = 128 << 10 }; /* reduced at a time by direct.c: stays in the second-level cache */

static inline uint64_t hk_load(const hk_word *word) { return atomic_load_explicit(word, memory_order_acquire); }
static inline void hk_store(hk_word *word, uint64_t value) { atomic_store_explicit(word, value, memory_order_release); }
static inline size_t hk_smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline uint64_t hk_stage(uint64_t number, uint64_t count) { return number << HK_COUNT_BITS | count; }

/* --- a plan ------------------------------------------------------------------------------------------------------ */

/* How the bytes of an operation move on one host. */
typedef enum {
    HK_MOVE,   /* pieces are copied; also where nothing moves */
    HK_OWN,    /* every reader reduces what it reads by itself */
    HK_SHARED, /* each member reduces its segment into the result slot, readers copy the whole */
    HK_BROUGHT, /* the worker reduces what is posted and brings the result of all hosts */
} hk_manner;

/* One contribution as it concerns this member: the pieces of `sends[sender]` that it reads. */
typedef struct {
    size_t whole;  /* nbytes in all */
    size_t unit;   /* nbytes of a whole piece: what one block moves */
    size_t place;  /* offset of the piece in the sender's slot */
    size_t origin; /* offset of this member's part in the sender's memory */
    uint32_t owed; /* blocks that the sender posts */
} hk_inflow;

typedef struct {
    PyObject_HEAD
    hk_manner manner;
    int size, member;
    uint32_t nblocks;
    bool reads;               /* whether this member gets anything */
    uint64_t *expected;       /* [size] call words on which this plan was agreed */
    hk_inflow *from;          /* [size] */
    size_t *to;               /* [parts] nbytes that this member sends to each reader, or to all in one */
    int parts;                /* 0: it contributes nothing, 1: one piece for all, size: one for each */
    size_t unit;              /* nbytes of a whole piece of this member's */
    hk_kernel kernel;         /* of reductions */
    size_t itemsize;
    char *text;               /* this member's encoded signature */
    size_t text_nbytes;
    size_t sends_nbytes, recvs_nbytes; /* what the caller's arrays must hold */
} hk_plan;

extern PyType_Spec hk_plan_spec;

/* --- a seat ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    Py_buffer board, bells;
    char *base;
    hk_word *asleep;
    int size, member;
    size_t texts, text_room, slots, results, room;
    int nwake;
    int *wake_places, *wake_fds; /* the descriptors are our own duplicates */
    bool crowded;                /* more ranks than cores: waiting gives way at once */
    bool bridged;                /* other hosts take part: the worker writes the lines and slots of their members */
    int *locals, nlocals;        /* the members on this host, in rank order; where `bridged` is not set, all */
    int index;                   /* of this member among them */
    int *pids;                   /* [size] of the members, once they may read one another's memory, else NULL */
    bool proved;                 /* that this one can read the memory of all others */
} hk_seat;

static inline hk_word *hk_line(const hk_seat *seat, int member)
{
    return (hk_word *)(seat->base + HK_PAGE_NBYTES) + (size_t)member * HK_LINE_WORDS;
}

static inline char *hk_slot(const hk_seat *seat, int member, uint64_t block)
{
    return seat->base + seat->slots + ((size_t)member * 2 + (block & 1)) * seat->room;
}

static inline char *hk_result(const hk_seat *seat, uint64_t block)
{
    return seat->base + seat->results + (block & 1) * seat->room;
}

extern PyType_Spec hk_seat_spec;

/* --- one operation under way ------------------------------------------------------------------------------------- */

typedef enum {
    HK_DONE,      /* everything this member needs has been read, and nobody may abort it any more */
    HK_WAIT,      /* nothing moved for as long as was allowed */
    HK_MORE,      /* it goes on, but the caller has other things to look at as well */
    HK_DIFFERENT, /* somebody's call is not what the plan was agreed on */
} hk_outcome;

typedef struct {
    hk_seat *seat;
    hk_plan *plan;
    uint64_t number, sealed;
    long before;                    /* blocks of the operation before, -1: unknown */
    uint32_t posted, reduced, read; /* blocks so far */
    bool agreed, wrote;
    bool straight[2];               /* by parity of the block: the own segment stands in the caller's array already */
    uint64_t offer;                 /* what this member lets others read: see HK_OFFER_EVEN */
    bool direct;                    /* all have offered, and read one another's memory: see direct.c */
    int turn;                       /* of the members that are read from, one after the other */
    size_t got;                     /* bytes of that one, or of the own segment, so far */
    char *scratch;
    int failed;                     /* errno of the last attempt to read */
    const char **send;              /* [parts] */
    char **recv;                    /* [size] by sender (moved), or [1] */
} hk_run;

/* Signs operation `run->number` with the plan's text, having posted the first block if its slot is free. */
void hk_enter(hk_run *run);

/* Goes on until the operation is done, or nothing has moved for `patience_ns`; for at most `HK_TURN_NS`. */
hk_outcome hk_advance(hk_run *run, uint64_t patience_ns);

/* Nothing of the operation is needed any more. */
void hk_leave(hk_run *run);

/* What the parts of the program share. */
bool hk_locals_at_least(const hk_run *run, int word, uint64_t needed);
bool hk_may_complete(const hk_run *run);
size_t hk_segment(const hk_plan *plan, size_t nbytes, int index, int count, size_t *start);

/* --- reading one another's memory -------------------------------------------------------------------------------- */

bool hk_direct_offered(const hk_run *run);
bool hk_direct_step(hk_run *run);
bool hk_direct_is_done(const hk_run *run);

/* Says where this process's memory can be read, and tries that with everybody else who has said so. */
void hk_introduce(const hk_seat *seat);
bool hk_prove(hk_seat *seat);

/* --- arguments --------------------------------------------------------------------------------------------------- */

/* The memory of an array that is contiguous, in native byte order and, where `writable`, may be written: its address,
 * NULL for any other object. Of a 0-byte array the address means nothing and is not NULL. Sets no Python error. */
char *hk_array_data(PyObject *array, bool writable, size_t *nbytes);

extern PyType_Spec hk_words_spec;
extern PyMethodDef hk_kernel_methods[];
uint64_t hk_now_ns(void);

#endif
