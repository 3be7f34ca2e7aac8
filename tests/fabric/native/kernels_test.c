/* Every kernel, on memory that ends where its elements end and begins at any address.
 *
 * Built by test_native_kernels_memory.py with the address and undefined-behaviour sanitizers. What the bits of a result
 * must be is tested against numpy elsewhere (test_native_kernels.py); here small numbers, of which every dtype holds the
 * result exactly, are folded by hand, and any bits must give the same in every way that there is: in one step or two, in
 * place of any input, an array at once or one element after the other.
 *
 * Usage: kernels_test SEED INSTRUCTIONS
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { MOST_INPUTS = 300, LARGE = 2600, WIDEST = 16 };

static const char *const ops[] = {"SUM", "AVG", "PREMUL_SUM", "PRODUCT", "MIN",  "MAX",    "BAND",
                                  "BOR", "BXOR", "LAND",      "LOR",     "LXOR", "MINLOC", "MAXLOC"};
static const char *const dtypes[] = {"bool",    "int8",     "int16",   "int32",   "int64",     "uint8",     "uint16",
                                     "uint32",  "uint64",   "float16", "bfloat16", "float32", "float64", "complex64",
                                     "complex128", "float8_e4m3fn", "float8_e5m2"};
enum { OPS = sizeof ops / sizeof *ops, DTYPES = sizeof dtypes / sizeof *dtypes };

static const char *op, *dtype;
static hk_kernel kernel;
static int ninputs;
static size_t count;

static void fail(const char *what)
{
    fprintf(stderr, "%s of %s, %d inputs, %zu elements: %s\n", op, dtype, ninputs, count, what);
    exit(1);
}

static bool is(const char *text, const char *other) { return strcmp(text, other) == 0; }

/* --- memory ------------------------------------------------------------------------------------------------------ */

static unsigned state;

static unsigned any(void) { return state = state * 1664525u + 1013904223u, state >> 8; }

/* `nbytes` that begin at an odd address now and then; what lies behind them is not to be touched. */
typedef struct {
    char *memory, *start;
} room;

static room make(size_t nbytes)
{
    size_t offset = any() % 16;
    char *memory = malloc(offset + nbytes);
    if (memory == NULL)
        abort();
    return (room){memory, memory + offset};
}

static void same(const char *found, const char *expected, size_t nbytes, const char *what)
{
    if (nbytes && memcmp(found, expected, nbytes) != 0)
        fail(what);
}

/* --- small numbers ----------------------------------------------------------------------------------------------- */

/* The bits of a small number that is not negative, 1 + F / 2^mantissa times a power of two. */
static uint16_t half_of(unsigned value, int mantissa, int bias)
{
    int exponent = 0;
    while (value >> exponent > 1)
        exponent++;
    return value ? (uint16_t)((unsigned)(exponent + bias - 1) << mantissa) + (uint16_t)(value << (mantissa - exponent)) : 0;
}

static void put(char *to, unsigned value)
{
    float single[2] = {(float)value, 0};
    double twice[2] = {value, 0};
    uint64_t integer = value;
    uint16_t half = is(dtype, "float16") ? half_of(value, 10, 15) : half_of(value, 7, 127);
    if (is(dtype, "float32") || is(dtype, "complex64"))
        memcpy(to, single, kernel.itemsize);
    else if (is(dtype, "float64") || is(dtype, "complex128"))
        memcpy(to, twice, kernel.itemsize);
    else if (is(dtype, "float16") || is(dtype, "bfloat16"))
        memcpy(to, &half, sizeof half);
    else
        memcpy(to, &integer, kernel.itemsize); /* little-endian, as everywhere where hocket runs */
}

static unsigned step(unsigned a, unsigned b)
{
    bool truth = is(dtype, "bool");
    if (is(op, "SUM") || is(op, "AVG") || is(op, "PREMUL_SUM"))
        return truth ? a | b : a + b;
    if (is(op, "PRODUCT"))
        return a * b;
    if (is(op, "MIN"))
        return a < b ? a : b;
    if (is(op, "MAX"))
        return a > b ? a : b;
    if (is(op, "BAND"))
        return a & b;
    if (is(op, "BOR"))
        return a | b;
    if (is(op, "BXOR"))
        return a ^ b;
    return is(op, "LAND") ? a && b : is(op, "LOR") ? a || b : !a != !b;
}

/* Of input `input` at place `at`; for AVG the same of all inputs, so that it comes out whole. */
static unsigned small(int input, size_t at)
{
    size_t salt = is(op, "AVG") ? at * 7 : at * 7 + (size_t)input * 5 + at * (size_t)input;
    return (unsigned)(salt / 3 % (is(dtype, "bool") ? 2 : 3)); /* up to 2^9 in a product of nine */
}

static unsigned expected_at(size_t at)
{
    unsigned result = small(0, at);
    if (op[0] == 'L' && ninputs == 1)
        return result != 0;
    if (is(op, "MINLOC") || is(op, "MAXLOC")) {
        int best = 0;
        size_t pair = at & ~(size_t)1;
        for (int input = 1; input < ninputs; input++) {
            unsigned value = small(input, pair), held = small(best, pair);
            bool better = is(op, "MINLOC") ? value < held : value > held;
            if (better || (value == held && small(input, pair + 1) < small(best, pair + 1)))
                best = input;
        }
        return small(best, at);
    }
    for (int input = 1; input < ninputs; input++)
        result = step(result, small(input, at));
    return is(op, "AVG") ? result / (unsigned)ninputs : is(op, "PREMUL_SUM") ? result * 2 : result;
}

static void check_small_numbers(void)
{
    size_t nbytes = count * kernel.itemsize;
    room inputs[MOST_INPUTS], out = make(nbytes), expected = make(nbytes);
    const void *starts[MOST_INPUTS];
    for (int input = 0; input < ninputs; input++) {
        starts[input] = (inputs[input] = make(nbytes)).start;
        for (size_t at = 0; at < count; at++)
            put(inputs[input].start + at * kernel.itemsize, small(input, at));
    }
    for (size_t at = 0; at < count; at++) {
        unsigned value = expected_at(at);
        put(expected.start + at * kernel.itemsize, is(op, "PREMUL_SUM") && ninputs == 1 ? small(0, at) * 2 : value);
    }
    hk_reduce_finish(&kernel, out.start, starts, ninputs, count, ninputs);
    same(out.start, expected.start, nbytes, "small numbers come out wrong");
    for (int input = 0; input < ninputs; input++)
        free(inputs[input].memory);
    free(out.memory);
    free(expected.memory);
}

/* --- any bits ---------------------------------------------------------------------------------------------------- */

static void check_in_place(room *inputs, const void **starts, const char *expected)
{
    size_t nbytes = count * kernel.itemsize;
    room kept = make(nbytes);
    for (int input = 0; input < ninputs; input += ninputs > 9 ? 97 : 1) {
        memcpy(kept.start, inputs[input].start, nbytes);
        hk_reduce_finish(&kernel, inputs[input].start, starts, ninputs, count, ninputs);
        same(inputs[input].start, expected, nbytes, "in place it is something else");
        memcpy(inputs[input].start, kept.start, nbytes);
    }
    free(kept.memory);
}

static void check_one_by_one(room *inputs, const char *expected)
{
    size_t unit = op[0] == 'M' && strlen(op) > 3 ? 2 : 1; /* pairs */
    const void *starts[MOST_INPUTS];
    room out = make(unit * kernel.itemsize);
    for (size_t at = 0; at + unit <= count; at += unit) {
        for (int input = 0; input < ninputs; input++)
            starts[input] = inputs[input].start + at * kernel.itemsize;
        hk_reduce_finish(&kernel, out.start, starts, ninputs, unit, ninputs);
        same(out.start, expected + at * kernel.itemsize, unit * kernel.itemsize, "alone an element is something else");
    }
    free(out.memory);
}

static void check_any_bits(void)
{
    size_t nbytes = count * kernel.itemsize;
    room inputs[MOST_INPUTS], acc = make(count * kernel.wide), out = make(nbytes), direct = make(nbytes);
    const void *starts[MOST_INPUTS];
    for (int input = 0; input < ninputs; input++) {
        starts[input] = (inputs[input] = make(nbytes)).start;
        for (size_t at = 0; at < nbytes; at++)
            inputs[input].start[at] = (char)(any() % 4 ? any() : any() % 2 * 0xff);
    }
    hk_reduce(&kernel, acc.start, starts, ninputs, count);
    hk_finish(&kernel, out.start, acc.start, count, ninputs);
    hk_reduce_finish(&kernel, direct.start, starts, ninputs, count, ninputs);
    same(direct.start, out.start, nbytes, "in one step it is something else");
    if (kernel.wide == kernel.itemsize) {
        hk_finish(&kernel, acc.start, acc.start, count, ninputs);
        same(acc.start, out.start, nbytes, "finished in place it is something else");
    }
    check_in_place(inputs, starts, out.start);
    if (count <= 70)
        check_one_by_one(inputs, out.start);
    for (int input = 0; input < ninputs; input++)
        free(inputs[input].memory);
    free(acc.memory);
    free(out.memory);
    free(direct.memory);
}

static void check_kernel(void)
{
    static const size_t counts[] = {0, 2, 4, 8, 16, 30, 34, 64, 70, 1024, LARGE};
    for (ninputs = 1; ninputs <= 9; ninputs += ninputs > 3 ? 5 : 1)
        for (size_t at = 0; at < sizeof counts / sizeof *counts; at++)
            for (int odd = 0; odd < (strlen(op) > 5 && op[0] == 'M' ? 1 : 2); odd++) {
                if (counts[at] > 70 && ninputs == 4)
                    continue; /* takes long; test_native_kernels.py has them */
                count = counts[at] + (size_t)odd;
                check_small_numbers();
                check_any_bits();
            }
    ninputs = MOST_INPUTS;
    count = 34;
    check_any_bits();
}

int main(int arguments, char **values)
{
    int found = 0;
    state = arguments > 1 ? (unsigned)atoi(values[1]) : 1;
    if (!hk_kernels_use(arguments > 2 ? values[2] : NULL)) {
        puts("no such instructions");
        return 0;
    }
    for (size_t row = 0; row < OPS; row++)
        for (size_t column = 0; column < DTYPES; column++) {
            op = ops[row];
            dtype = dtypes[column];
            if (!hk_kernel_find(&kernel, op, 2, dtype))
                continue;
            if (kernel.itemsize > WIDEST || kernel.wide > WIDEST)
                fail("elements of no known size");
            check_kernel();
            found++;
        }
    printf("%d kernels: right\n", found);
    return 0;
}
