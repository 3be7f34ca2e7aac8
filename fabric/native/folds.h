/* What the loops of kernels.c are made of: types that stand at any address, conversions, and one loop for all folds. */
#ifndef HOCKET_FOLDS_H
#define HOCKET_FOLDS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LOOSE __attribute__((aligned(1), may_alias))

/* One copy of a loop for each instruction set, chosen when the module is loaded. Sanitizers start too late for that. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__) &&                         \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

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

/* --- halves ------------------------------------------------------------------------------------------------------ */

/* Exact. A float16's bits, moved to where a float32 has them, are its value times 2^-112; infinity and NaN are put right
 * by hand. */
INLINE float from_f16(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t scaled = bits_of(float_of(magnitude) * 0x1p112f);
    return float_of((magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : scaled) | sign);
}

/* Rounds to nearest, ties to even. Where the result is subnormal, adding 0.5 to the magnitude lets the float32 addition
 * itself round at the right bit. */
INLINE uint16_t to_f16(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t subnormal = bits_of(float_of(magnitude < 0x38800000u ? magnitude : 0) + 0.5f) - 0x3f000000u;
    uint32_t beyond = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t result = magnitude >= 0x47800000u ? beyond : magnitude < 0x38800000u ? subnormal : normal;
    return (uint16_t)(result | sign);
}

INLINE float from_bf16(uint16_t half) { return float_of((uint32_t)half << 16); }

INLINE uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/* --- floats in the order of integers ------------------------------------------------------------------------------ */

/* Read as an integer with the magnitude of negative numbers inverted, a float sorts as it should, -0 before +0. NaNs get
 * the value that wins: `nan`. */
#define ORDERED(NAME, INT, INFINITY_BITS, NAN_BITS)                                                                      \
    INLINE INT key_##NAME(INT bits, INT nan)                                                                             \
    {                                                                                                                    \
        INT most = (INT)(((INT)1 << (sizeof(INT) * 8 - 2)) - 1) * 2 + 1;                                                 \
        INT magnitude = (INT)(bits & most);                                                                              \
        INT key = bits < 0 ? (INT)~magnitude : bits;                                                                     \
        return magnitude > (INT)(INFINITY_BITS) ? nan : key;                                                             \
    }                                                                                                                    \
    INLINE INT bits_##NAME(INT key, INT nan)                                                                             \
    {                                                                                                                    \
        INT most = (INT)(((INT)1 << (sizeof(INT) * 8 - 2)) - 1) * 2 + 1;                                                 \
        return key == nan ? (INT)(NAN_BITS) : key < 0 ? (INT)(key ^ most) : key;                                         \
    }

ORDERED(f16, int16_t, 0x7c00, 0x7e00)
ORDERED(bf16, int16_t, 0x7f80, 0x7fc0)
ORDERED(f32, int32_t, 0x7f800000, 0x7fc00000)
ORDERED(f64, int64_t, 0x7ff0000000000000, 0x7ff8000000000000)

/* --- the loop ----------------------------------------------------------------------------------------------------- */

/* Defines a fold: LIFT makes a WORK of an element x, STEP combines two of them a and b, LOWER makes an element of the
 * output of a WORK w. Two inputs are folded in one go; more of them in a buffer, after which nothing is read any more
 * where it is written. Each of the loops may write where it reads, at the same place: there is no dependency. */
#define FOLD(NAME, OUT, IN, WORK, LIFT, STEP, LOWER)                                                                     \
    CLONES static void NAME(void *to, const void *const *from, int ninputs, size_t count, double factor)                 \
    {                                                                                                                    \
        (void)factor;                                                                                                    \
        OUT *out = to;                                                                                                   \
        if (ninputs == 2) {                                                                                              \
            const IN *first = from[0], *second = from[1];                                                                \
            _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++)                                                      \
            {                                                                                                            \
                WORK a, b, w;                                                                                            \
                { IN x = first[i]; a = LIFT; }                                                                           \
                { IN x = second[i]; b = LIFT; }                                                                          \
                w = STEP;                                                                                                \
                out[i] = LOWER;                                                                                          \
            }                                                                                                            \
            return;                                                                                                      \
        }                                                                                                                \
        WORK folded[PIECE];                                                                                              \
        for (size_t start = 0; start < count; start += PIECE) {                                                          \
            size_t length = count - start < PIECE ? count - start : PIECE;                                               \
            const IN *source = (const IN *)from[0] + start;                                                              \
            for (size_t i = 0; i < length; i++) { IN x = source[i]; folded[i] = LIFT; }                                  \
            for (int input = 1; input < ninputs; input++) {                                                              \
                source = (const IN *)from[input] + start;                                                                \
                for (size_t i = 0; i < length; i++) {                                                                    \
                    WORK a = folded[i], b;                                                                               \
                    { IN x = source[i]; b = LIFT; }                                                                      \
                    folded[i] = STEP;                                                                                    \
                }                                                                                                        \
            }                                                                                                            \
            for (size_t i = 0; i < length; i++) { WORK w = folded[i]; out[start + i] = LOWER; }                          \
        }                                                                                                                \
    }

#endif
