/* Members as threads on one board, each carrying out the same random operations by the core's program, results checked.
 *
 * Built by test_native_board.py, once with the address and undefined-behaviour sanitizers and once with the thread
 * sanitizer, for which every byte of a slot that is read without an ordering word in between is an error.
 *
 * Usage: board_test MEMBERS OPERATIONS SEED
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

enum { BLOCK = 4096, TEXT_ROOM = 64, MOST = 8, WIDEST = 3 * BLOCK };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, BARRIER, KINDS };

static int members, operations;
static unsigned seed;
static char *memory;

typedef struct {
    int kind, root;
    size_t count; /* floats: of the whole array, or of the piece for each member */
} operation;

static operation draw(unsigned *state)
{
    operation op = {rand_r(state) % KINDS, rand_r(state) % members, (size_t)rand_r(state) % (WIDEST / 4)};
    if (op.kind >= ALL_TO_ALL)
        op.count /= (size_t)members;
    return op;
}

static float given(int rank, int number, size_t at) { return (float)((rank * 31 + number * 7 + (int)(at % 97)) % 64); }

static void check(float found, float expected, const char *what, int number, size_t at)
{
    if (found != expected) {
        fprintf(stderr, "%s #%d, element %zu: %g, not %g\n", what, number, at, found, expected);
        exit(1);
    }
}

static uint32_t blocks(size_t nbytes, size_t unit) { return (uint32_t)((nbytes + unit - 1) / unit); }

/* The plan as hocket.fabric.native_plan would make it. */
static void make_plan(hk_plan *plan, const operation *op, int me, const hk_kernel *sum)
{
    size_t nbytes = op->count * 4;
    bool divided = op->kind == ALL_TO_ALL || op->kind == REDUCE_SCATTER;
    size_t unit = divided ? BLOCK / (size_t)members / 64 * 64 : BLOCK;
    bool small = nbytes <= 512;
    plan->manner = op->kind == REDUCE_SCATTER || ((op->kind == ALL_REDUCE || op->kind == REDUCE) && small) ? HK_OWN
                   : op->kind == ALL_REDUCE || op->kind == REDUCE                                        ? HK_SHARED
                                                                                                         : HK_MOVE;
    plan->size = members;
    plan->member = me;
    plan->unit = unit;
    plan->kernel = *sum;
    plan->itemsize = 4;
    plan->text = "call";
    plan->text_nbytes = 4;
    plan->nblocks = 0;
    bool sends = op->kind != BARRIER && (op->kind != BROADCAST || me == op->root);
    plan->parts = !sends ? 0 : divided ? members : 1;
    for (int part = 0; part < plan->parts; part++)
        plan->to[part] = nbytes;
    plan->reads = op->kind != BARRIER && (op->kind != REDUCE || me == op->root) && (op->kind != BROADCAST || me != op->root);
    for (int member = 0; member < members; member++) {
        bool contributes = op->kind != BARRIER && (op->kind != BROADCAST || member == op->root);
        size_t whole = contributes && (plan->reads || plan->manner != HK_MOVE) ? nbytes : 0;
        plan->from[member] = (hk_inflow){whole, unit, divided ? (size_t)me * unit : 0,
                                         op->kind == ALL_TO_ALL ? (size_t)me * nbytes : 0,
                                         contributes ? blocks(nbytes, unit) : 0};
        plan->expected[member] = (uint64_t)(op->kind + 1) << 32 | op->count << 4 | (unsigned)op->root;
        if (plan->from[member].owed > plan->nblocks)
            plan->nblocks = plan->from[member].owed;
    }
}

static void check_result(const operation *op, int me, int number, float *const *recv)
{
    size_t offset = (size_t)me * op->count;
    for (size_t at = 0; at < op->count; at++) {
        float sum = 0;
        for (int rank = 0; rank < members; rank++)
            sum += given(rank, number, op->kind == REDUCE_SCATTER ? offset + at : at);
        if (op->kind == ALL_REDUCE || op->kind == REDUCE_SCATTER || (op->kind == REDUCE && me == op->root))
            check(recv[0][at], sum, "reduction", number, at);
        if (op->kind == BROADCAST && me != op->root)
            check(recv[op->root][at], given(op->root, number, at), "broadcast", number, at);
        for (int rank = 0; rank < members && (op->kind == ALL_GATHER || op->kind == ALL_TO_ALL); rank++)
            check(recv[rank][at], given(rank, number, op->kind == ALL_TO_ALL ? offset + at : at), "moving", number, at);
    }
}

static void *member(void *argument)
{
    int me = (int)(intptr_t)argument;
    hk_seat seat = {.base = memory, .size = members, .member = me, .texts = 2 * HK_PAGE_NBYTES,
                    .text_room = TEXT_ROOM, .slots = 3 * HK_PAGE_NBYTES, .room = BLOCK, .crowded = true};
    int pids[MOST];
    for (int index = 0; index < members; index++)
        pids[index] = getpid();
    seat.pids = pids;
    int locals[MOST];
    for (int index = 0; index < members; index++)
        locals[index] = index;
    seat.locals = locals;
    seat.nlocals = members;
    seat.index = me;
    hk_introduce(&seat);
    seat.results = seat.slots + (size_t)members * 2 * BLOCK;
    uint64_t expected[MOST];
    hk_inflow from[MOST];
    size_t to[MOST];
    hk_plan plan = {.expected = expected, .from = from, .to = to};
    hk_kernel sum;
    if (!hk_kernel_find(&sum, "SUM", 0, "float32"))
        abort();
    float *source = malloc(WIDEST * 2), *target = malloc(WIDEST * MOST * 2);
    char *scratch = malloc((size_t)MOST * HK_PIECE_NBYTES);
    unsigned state = seed, mine = seed * 31 + (unsigned)me;
    long before = 0;
    for (int number = 1; number <= operations; number++) {
        operation op = draw(&state);
        make_plan(&plan, &op, me, &sum);
        for (size_t at = 0; at < op.count * (size_t)(plan.parts ? plan.parts : 1); at++)
            source[at] = given(me, number, at);
        const char *send[MOST];
        char *recv[MOST];
        for (int index = 0; index < members; index++) {
            send[index] = (const char *)(source + (size_t)index * op.count);
            recv[index] = (char *)(target + (size_t)index * op.count);
        }
        bool offers = op.kind == ALL_REDUCE ? plan.manner == HK_SHARED : plan.manner == HK_MOVE;
        bool in_place = op.kind == ALL_REDUCE && (offers || rand_r(&mine) % 2);
        if (in_place)
            recv[0] = (char *)source;
        hk_run run = {.seat = &seat, .plan = &plan, .number = (uint64_t)number, .before = before,
                      .send = send, .recv = recv, .scratch = scratch};
        /* Now and then one of them cannot: then nobody reads anybody's memory. */
        if (offers && rand_r(&mine) % 16 && hk_prove(&seat))
            run.offer = plan.parts ? (uint64_t)(uintptr_t)send[0] : HK_NOTHING;
        hk_enter(&run);
        hk_outcome outcome;
        do
            outcome = hk_advance(&run, (uint64_t)rand_r(&mine) % 2000);
        while (outcome == HK_WAIT || outcome == HK_MORE);
        if (outcome != HK_DONE) {
            fprintf(stderr, "#%d: the calls are the same, and found different\n", number);
            exit(1);
        }
        check_result(&op, me, number, (float *const *)recv);
        before = plan.nblocks;
        hk_leave(&run);
    }
    free(scratch);
    free(source);
    free(target);
    return NULL;
}

int main(int count, char **arguments)
{
    members = count > 1 ? atoi(arguments[1]) : 2;
    operations = count > 2 ? atoi(arguments[2]) : 1000;
    seed = count > 3 ? (unsigned)atoi(arguments[3]) : 1;
    memory = aligned_alloc(HK_PAGE_NBYTES, (size_t)(8 + 4 * MOST) * HK_PAGE_NBYTES);
    memset(memory, 0, (size_t)(8 + 4 * MOST) * HK_PAGE_NBYTES);
    pthread_t threads[MOST];
    for (int me = 0; me < members; me++)
        pthread_create(&threads[me], NULL, member, (void *)(intptr_t)me);
    for (int me = 0; me < members; me++)
        pthread_join(threads[me], NULL);
    free(memory);
    printf("%d members, %d operations: right\n", members, operations);
    return 0;
}
