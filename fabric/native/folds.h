/* What the loops of kernel_loops.h are made of: types that stand at any address, conversions, and the loops themselves.
 * Function names get the name of the instruction set that they are compiled for, HK_SET. */
#ifndef HOCKET_FOLDS_H
#define HOCKET_FOLDS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LOOSE __attribute__((aligned(1), may_alias))

typedef int8_t LOOSE l_i8;
typedef int16_t LOOSE l_i16;
typedef int32_t LOOSE l_i32;
typedef int64_t LOOSE l_i64;
typedef uint8_t LOOSE l_u8;
typedef uint16_t LOOSE l_u16;
typedef uint32_t LOOSE l_u32;
typedef uint64_t LOOSE l_u64;
typedef float LOOSE l_f32;
typedef double LOOSE l_f64;

enum { PIECE = 1024 }; /* elements folded at a time */

INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* `a` where `mask` has ones, else `b`. Loops of selections become vectors where those of branches do not. */
INLINE uint32_t pick(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }

INLINE uint32_t mask_of(bool condition) { return 0u - (uint32_t)condition; }

/* --- halves ------------------------------------------------------------------------------------------------------ */

#ifdef __aarch64__
/* Every such processor converts by itself. */
INLINE float from_f16(uint16_t half)
{
    __fp16 value;
    memcpy(&value, &half, sizeof value);
    return value;
}

INLINE uint16_t to_f16(float wide)
{
    __fp16 value = (__fp16)wide;
    uint16_t half;
    memcpy(&half, &value, sizeof half);
    return half;
}
#else
/* Exact. A float16's bits, moved to where a float32 has them, are its value times 2^-112; infinity and NaN are put right
 * by hand. */
INLINE float from_f16(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t scaled = bits_of(float_of(magnitude) * 0x1p112f);
    return float_of(pick(mask_of(magnitude >= 0x0f800000u), magnitude | 0x7f800000u, scaled) | sign);
}

/* Rounds to nearest, ties to even. Where the result is subnormal, adding 0.5 to the magnitude lets the float32 addition
 * itself round at the right bit. */
INLINE uint16_t to_f16(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    uint32_t small = mask_of(magnitude < 0x38800000u);
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t subnormal = bits_of(float_of(magnitude & small) + 0.5f) - 0x3f000000u;
    uint32_t beyond = 0x7c00u | (mask_of(magnitude > 0x7f800000u) & 0x200u);
    uint32_t result = pick(mask_of(magnitude >= 0x47800000u), beyond, pick(small, subnormal, normal));
    return (uint16_t)(result | sign);
}
#endif

INLINE float from_bf16(uint16_t half) { return float_of((uint32_t)half << 16); }

INLINE uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)pick(mask_of((bits & 0x7fffffffu) > 0x7f800000u), 0x7fc0u, rounded);
}

/* --- floats in the order of integers ------------------------------------------------------------------------------ */

/* Read as an integer with the magnitude of negative numbers inverted, a float sorts as it should, -0 before +0: numbers
 * from ~infinity to infinity, NaNs beyond both. Adding `shift`, which wraps, moves the numbers up to the end of the range
 * and all NaNs below them. A `twist` of ones turns the numbers round, for the greatest to come first. */
#define ORDERED(NAME, INT, UINT, LEAST, INFINITY_BITS, NAN_BITS)                                                         \
    enum { SIGN_##NAME = sizeof(INT) * 8 - 1 };                                                                          \
    static const INT most_##NAME = (INT)~LEAST, shift_##NAME = (INT)(~LEAST - (INFINITY_BITS));                          \
    INLINE INT inverted_##NAME(INT bits) { return (INT)(bits ^ ((bits >> SIGN_##NAME) & most_##NAME)); }                 \
    INLINE bool is_number_##NAME(INT bits) { return (INT)(bits & most_##NAME) <= (INT)(INFINITY_BITS); }                 \
    INLINE INT one_nan_##NAME(INT bits) { return is_number_##NAME(bits) ? bits : (INT)(NAN_BITS); }                      \
    INLINE INT key_##NAME(INT bits, INT twist)                                                                           \
    {                                                                                                                    \
        return (INT)((UINT)(inverted_##NAME(bits) ^ twist) + (UINT)shift_##NAME);                                        \
    }                                                                                                                    \
    INLINE INT bits_##NAME(INT key, INT twist)                                                                           \
    {                                                                                                                    \
        return one_nan_##NAME(inverted_##NAME((INT)((UINT)key - (UINT)shift_##NAME) ^ twist));                           \
    }                                                                                                                    \
    /* As numbers compare: -0 is +0. */                                                                                  \
    INLINE INT number_##NAME(INT bits) { return (INT)((UINT)inverted_##NAME(bits) + (UINT)(bits < 0)); }                 \
    INLINE INT value_##NAME(INT bits, INT twist)                                                                         \
    {                                                                                                                    \
        return is_number_##NAME(bits) ? (INT)(number_##NAME(bits) ^ twist) : (INT)LEAST;                                 \
    }

ORDERED(f16, int16_t, uint16_t, INT16_MIN, 0x7c00, 0x7e00)
ORDERED(bf16, int16_t, uint16_t, INT16_MIN, 0x7f80, 0x7fc0)
ORDERED(f32, int32_t, uint32_t, INT32_MIN, 0x7f800000, 0x7fc00000)
ORDERED(f64, int64_t, uint64_t, INT64_MIN, 0x7ff0000000000000, 0x7ff8000000000000)

/* --- the loops ---------------------------------------------------------------------------------------------------- */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAMED(name) JOIN(name, HK_SET)

/* An iteration may write where it reads, and no other one reads there. */
#ifdef __clang__
#define EACH(LENGTH) _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < (LENGTH); i++)
#else
#define EACH(LENGTH) _Pragma("GCC ivdep") for (size_t i = 0; i < (LENGTH); i++)
#endif

#define FOLD_HEAD(NAME)                                                                                                  \
    static void NAMED(NAME)(void *to, const void *const *from, int ninputs, size_t first, size_t count, double factor,   \
                            int64_t twist)

/* Defines a fold: LIFT makes a WORK of an element x, STEP combines two of them a and b, LOWER makes an element of the
 * output of a WORK w. Elements gather in a buffer, so that nothing is read any more where the output is written. The empty
 * statement keeps compilers from exchanging the loops over inputs and elements. */
#define LIFTED(WORK, NAME, IN, SOURCE, LIFT) WORK NAME; { IN x = (SOURCE)[i]; NAME = (WORK)(LIFT); }
#define GATHER(OUT, IN, WORK, LIFT, STEP, LOWER)                                                                         \
    WORK folded[PIECE];                                                                                                  \
    (void)factor;                                                                                                        \
    (void)twist;                                                                                                         \
    for (size_t start = 0; start < count; start += PIECE) {                                                              \
        size_t length = count - start < PIECE ? count - start : PIECE;                                                   \
        const IN *one = (const IN *)from[0] + first + start;                                                             \
        EACH(length) { LIFTED(WORK, w, IN, one, LIFT) folded[i] = w; }                                                   \
        for (int input = 1; input < ninputs; input++) {                                                                  \
            const IN *next = (const IN *)from[input] + first + start;                                                    \
            EACH(length) { WORK a = folded[i]; LIFTED(WORK, b, IN, next, LIFT) folded[i] = STEP; }                       \
            __asm__ volatile("");                                                                                        \
        }                                                                                                                \
        OUT *out = (OUT *)to + start;                                                                                    \
        EACH(length) { WORK w = folded[i]; out[i] = LOWER; }                                                             \
    }
#define FOLD(NAME, OUT, IN, WORK, LIFT, STEP, LOWER) FOLD_HEAD(NAME) { GATHER(OUT, IN, WORK, LIFT, STEP, LOWER) }

/* The same, for folds that are used most: two inputs, and four, are read side by
 * side and go straight to the output. */
#define FOLD_SWIFTLY(NAME, OUT, IN, WORK, LIFT, STEP, LOWER)                                                             \
    FOLD_HEAD(NAME)                                                                                                      \
    {                                                                                                                    \
        if (ninputs == 2) {                                                                                              \
            OUT *out = to;                                                                                               \
            const IN *one = (const IN *)from[0] + first, *two = (const IN *)from[1] + first;                             \
            EACH(count) { LIFTED(WORK, a, IN, one, LIFT) LIFTED(WORK, b, IN, two, LIFT) WORK w = STEP; out[i] = LOWER; } \
            return;                                                                                                      \
        }                                                                                                                \
        if (ninputs == 4) {                                                                                              \
            OUT *out = to;                                                                                               \
            const IN *one = (const IN *)from[0] + first, *two = (const IN *)from[1] + first;                             \
            const IN *three = (const IN *)from[2] + first, *four = (const IN *)from[3] + first;                          \
            EACH(count)                                                                                                  \
            {                                                                                                            \
                WORK w;                                                                                                  \
                { LIFTED(WORK, a, IN, one, LIFT) LIFTED(WORK, b, IN, two, LIFT) w = STEP; }                              \
                { WORK a = w; LIFTED(WORK, b, IN, three, LIFT) w = STEP; }                                               \
                { WORK a = w; LIFTED(WORK, b, IN, four, LIFT) w = STEP; }                                                \
                out[i] = LOWER;                                                                                          \
            }                                                                                                            \
            return;                                                                                                      \
        }                                                                                                                \
        GATHER(OUT, IN, WORK, LIFT, STEP, LOWER)                                                                         \
    }

/* Defines a fold of elements that are two numbers each: STEP sets w and v, given a and c of one element, b and d of the
 * next; W and V make the output's numbers of w and v. They gather in two buffers. Counts numbers: always even. */
#define FOLD_TWOS(NAME, TYPE, WORK, STEP, W, V)                                                                          \
    FOLD_HEAD(NAME)                                                                                                      \
    {                                                                                                                    \
        (void)factor;                                                                                                    \
        (void)twist;                                                                                                     \
        WORK left[PIECE / 2], right[PIECE / 2];                                                                          \
        for (size_t start = 0; start < count; start += PIECE) {                                                          \
            size_t length = (count - start < PIECE ? count - start : PIECE) / 2;                                         \
            const TYPE *one = (const TYPE *)from[0] + first + start;                                                     \
            EACH(length) { left[i] = one[2 * i]; right[i] = one[2 * i + 1]; }                                            \
            for (int input = 1; input < ninputs; input++) {                                                              \
                const TYPE *next = (const TYPE *)from[input] + first + start;                                            \
                EACH(length)                                                                                             \
                {                                                                                                        \
                    WORK a = left[i], c = right[i], b = next[2 * i], d = next[2 * i + 1], w, v;                          \
                    STEP                                                                                                 \
                    left[i] = w;                                                                                         \
                    right[i] = v;                                                                                        \
                }                                                                                                        \
                __asm__ volatile("");                                                                                    \
            }                                                                                                            \
            TYPE *out = (TYPE *)to + start;                                                                              \
            EACH(length) { WORK w = left[i], v = right[i]; (void)v; out[2 * i] = W; out[2 * i + 1] = V; }                \
        }                                                                                                                \
    }

/* Defines what makes the elements of a tensor of those of an accumulator, `x`. */
#define FINISH(NAME, OUT, ACC, RESULT)                                                                                   \
    static void NAMED(NAME)(void *to, const void *from, size_t count, int size, int64_t twist)                           \
    {                                                                                                                    \
        (void)size;                                                                                                      \
        (void)twist;                                                                                                     \
        OUT *out = to;                                                                                                   \
        const ACC *acc = from;                                                                                           \
        EACH(count) { ACC x = acc[i]; out[i] = RESULT; }                                                                 \
    }

#endif
