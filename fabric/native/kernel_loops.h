/* One fold for each op and kind of number, compiled once for each instruction set: kernels.c includes this file as often,
 * with the set's name as HK_SET, and HK_F16C where it converts float16. See `hocket.fabric.numpy_kernels` for what the
 * bits of a result must be. */

/* --- integers ---------------------------------------------------------------------------------------------------- */

/* Sums and products wrap, and so are the same for signed numbers. Of extremes the signed least is found; `twist` makes it
 * of the bits of unsigned numbers, or of the greatest. */
#define INTEGER(BITS)                                                                                                    \
    FOLD_SWIFTLY(sum_w##BITS, l_u##BITS, l_u##BITS, uint##BITS##_t, x, (uint##BITS##_t)(a + b), w)                       \
    FOLD(product_w##BITS, l_u##BITS, l_u##BITS, uint##BITS##_t, x, (uint##BITS##_t)(a * (uint64_t)b), w)                 \
    FOLD(extreme_w##BITS, l_i##BITS, l_i##BITS, int##BITS##_t, x ^ twist, b < a ? b : a, (int##BITS##_t)(w ^ twist))

INTEGER(8)
INTEGER(16)
INTEGER(32)
INTEGER(64)

/* Bits are bits: a tensor is folded as bytes. */
FOLD(and_bits, l_u8, l_u8, uint8_t, x, (uint8_t)(a & b), w)
FOLD(or_bits, l_u8, l_u8, uint8_t, x, (uint8_t)(a | b), w)
FOLD(xor_bits, l_u8, l_u8, uint8_t, x, (uint8_t)(a ^ b), w)

/* --- floats ------------------------------------------------------------------------------------------------------ */

/* Whatever NaNs went in, one comes out. */
#define ONE_NAN(w) ((w) == (w) ? (w) : NAN)

#define FLOATS(NAME, OUT, IN, WORK, LIFT)                                                                                \
    FOLD_SWIFTLY(sum_##NAME, OUT, IN, WORK, LIFT, a + b, ONE_NAN(w))                                                     \
    FOLD(product_##NAME, OUT, IN, WORK, LIFT, a * b, ONE_NAN(w))                                                         \
    FOLD(premul_##NAME, OUT, IN, WORK, (LIFT) * (WORK)factor, a + b, ONE_NAN(w))

FLOATS(f32, l_f32, l_f32, float, x)
FLOATS(f64, l_f64, l_f64, double, x)
FLOATS(bf16, l_f32, l_u16, float, from_bf16(x))

#define FLOAT_EXTREME(NAME, TYPE, WORK)                                                                                  \
    FOLD(extreme_##NAME, TYPE, TYPE, WORK, key_##NAME(x, (WORK)twist), b < a ? b : a, bits_##NAME(w, (WORK)twist))

FLOAT_EXTREME(f16, l_i16, int16_t)
FLOAT_EXTREME(bf16, l_i16, int16_t)
FLOAT_EXTREME(f32, l_i32, int32_t)
FLOAT_EXTREME(f64, l_i64, int64_t)

/* The textbook's four products; a fused one would make a * b another number than b * a. */
FOLD_TWOS(product_c64, l_f32, float, w = a * b - c * d; v = a * d + c * b;, ONE_NAN(w), ONE_NAN(v))
FOLD_TWOS(product_c128, l_f64, double, w = a * b - c * d; v = a * d + c * b;, ONE_NAN(w), ONE_NAN(v))

/* --- truth ------------------------------------------------------------------------------------------------------- */

/* True is a mask of ones until the end; `twist` is what it is in the tensor. It is 1 for integers; of a float the sign
 * does not count. */
#define IS_TRUE(WORK, x) ((WORK)-(WORK)(((x) & (WORK)((WORK)-1 >> (twist != 1))) != 0))
#define TRUTH(BITS)                                                                                                      \
    FOLD(and_w##BITS, l_u##BITS, l_u##BITS, uint##BITS##_t, IS_TRUE(uint##BITS##_t, x), (uint##BITS##_t)(a & b),         \
         (uint##BITS##_t)(w & (uint##BITS##_t)twist))                                                                    \
    FOLD(or_w##BITS, l_u##BITS, l_u##BITS, uint##BITS##_t, IS_TRUE(uint##BITS##_t, x), (uint##BITS##_t)(a | b),          \
         (uint##BITS##_t)(w & (uint##BITS##_t)twist))                                                                    \
    FOLD(xor_w##BITS, l_u##BITS, l_u##BITS, uint##BITS##_t, IS_TRUE(uint##BITS##_t, x), (uint##BITS##_t)(a ^ b),         \
         (uint##BITS##_t)(w & (uint##BITS##_t)twist))

TRUTH(8)
TRUTH(16)
TRUTH(32)
TRUTH(64)

/* A complex number is true where either part is; the parts of true are 1 and 0. */
#define COMPLEX_TRUTH(NAME, TYPE, WORK)                                                                                  \
    FOLD_TWOS(and_##NAME, TYPE, WORK, w = IS_TRUE(WORK, a | c) & IS_TRUE(WORK, b | d); v = 0;,                           \
              IS_TRUE(WORK, w | v) & (WORK)twist, 0)                                                                     \
    FOLD_TWOS(or_##NAME, TYPE, WORK, w = a | b; v = c | d;, IS_TRUE(WORK, w | v) & (WORK)twist, 0)                       \
    FOLD_TWOS(xor_##NAME, TYPE, WORK, w = IS_TRUE(WORK, a | c) ^ IS_TRUE(WORK, b | d); v = 0;,                           \
              IS_TRUE(WORK, w | v) & (WORK)twist, 0)

COMPLEX_TRUTH(c64, l_u32, uint32_t)
COMPLEX_TRUTH(c128, l_u64, uint64_t)

/* --- (value, index) pairs ---------------------------------------------------------------------------------------- */

/* The pair (b, d) takes the place of (a, c) if its value is better; of equal ones (-0 and +0 are, and all NaNs, which are
 * the best there is) if its index is less; of those that are neither less nor greater, if its bits are, as a signed
 * number's. VALUE and INDEX make numbers that compare so. COMPARES tells of an index whether it compares at all. */
#define LOCATE(NAME, TYPE, WORK, VALUE, INDEX, COMPARES, ONE)                                                            \
    FOLD_TWOS(locate_##NAME, TYPE, WORK,                                                                                 \
              WORK p = VALUE(b, (WORK)twist); WORK q = VALUE(a, (WORK)twist);                                            \
              WORK r = INDEX(d); WORK s = INDEX(c); WORK both = (WORK)-(WORK)(COMPARES(c) & COMPARES(d));                \
              WORK less = both & (WORK)-(WORK)(r < s); WORK greater = both & (WORK)-(WORK)(s < r);                       \
              WORK bits = (WORK)-(WORK)((b < a) | ((b == a) & (d < c)));                                                 \
              WORK takes = (WORK)-(WORK)(p < q) | ((WORK)-(WORK)(p == q) & (less | (~greater & bits)));                  \
              w = (b & takes) | (a & ~takes); v = (d & takes) | (c & ~takes);, ONE(w), ONE(v))

/* Of unsigned numbers `twist` has another first bit than the others. */
#define TWISTED(x, TWIST) ((x) ^ (TWIST))
#define INDEX_TWISTED(x) ((x) ^ (twist == 0 || twist == -1 ? 0 : twist < 0 ? twist : ~twist))
#define SAME(x) (x)
#define ALWAYS(x) 1

LOCATE(w8, l_i8, int8_t, TWISTED, INDEX_TWISTED, ALWAYS, SAME)
LOCATE(w16, l_i16, int16_t, TWISTED, INDEX_TWISTED, ALWAYS, SAME)
LOCATE(w32, l_i32, int32_t, TWISTED, INDEX_TWISTED, ALWAYS, SAME)
LOCATE(w64, l_i64, int64_t, TWISTED, INDEX_TWISTED, ALWAYS, SAME)
LOCATE(f16, l_i16, int16_t, value_f16, number_f16, is_number_f16, one_nan_f16)
LOCATE(bf16, l_i16, int16_t, value_bf16, number_bf16, is_number_bf16, one_nan_bf16)
LOCATE(f32, l_i32, int32_t, value_f32, number_f32, is_number_f32, one_nan_f32)
LOCATE(f64, l_i64, int64_t, value_f64, number_f64, is_number_f64, one_nan_f64)

/* --- finishing --------------------------------------------------------------------------------------------------- */

FINISH(divide_f32, l_f32, l_f32, x / (float)size)
FINISH(divide_f64, l_f64, l_f64, x / (double)size)
FINISH(round_bf16, l_u16, l_f32, to_bf16(x))
/* In two steps: compilers make no vectors of both at once. */
#define DIVIDE_HALVES(NAME)                                                                                              \
    static void NAMED(divide_##NAME)(void *to, const void *from, size_t count, int size, int64_t twist)                  \
    {                                                                                                                    \
        float quotients[PIECE];                                                                                          \
        for (size_t start = 0; start < count; start += PIECE) {                                                          \
            size_t length = count - start < PIECE ? count - start : PIECE;                                               \
            NAMED(divide_f32)(quotients, (const l_f32 *)from + start, length, size, twist);                              \
            NAMED(round_##NAME)((l_u16 *)to + start, quotients, length, size, twist);                                    \
        }                                                                                                                \
    }

DIVIDE_HALVES(bf16)

#define TRUTH_AGAIN(NAME)                                                                                                \
    static void NAMED(truth_##NAME)(void *out, const void *acc, size_t count, int size, int64_t twist)                   \
    {                                                                                                                    \
        (void)size;                                                                                                      \
        NAMED(or_##NAME)(out, &acc, 1, 0, count, 0, twist);                                                              \
    }

TRUTH_AGAIN(w8)
TRUTH_AGAIN(w16)
TRUTH_AGAIN(w32)
TRUTH_AGAIN(w64)
TRUTH_AGAIN(c64)
TRUTH_AGAIN(c128)

/* --- float16 ----------------------------------------------------------------------------------------------------- */

#ifdef HK_F16C

/* Eight at a time, by the processor; what is left over one by one, to the same bits. */
#define FOLD_F16C(NAME, SCALE, STEP)                                                                                     \
    FOLD_HEAD(NAME)                                                                                                      \
    {                                                                                                                    \
        float scale = (float)factor;                                                                                     \
        l_f32 *out = to;                                                                                                 \
        size_t i = 0;                                                                                                    \
        (void)scale;                                                                                                     \
        (void)twist;                                                                                                     \
        for (; i + 8 <= count; i += 8) {                                                                                 \
            eight a = EIGHT((const l_u16 *)from[0] + first + i) SCALE;                                                   \
            for (int input = 1; input < ninputs; input++) {                                                              \
                eight b = EIGHT((const l_u16 *)from[input] + first + i) SCALE;                                           \
                a = STEP;                                                                                                \
            }                                                                                                            \
            _mm256_storeu_ps((float *)(out + i), ONE_OF_EIGHT(a));                                                       \
        }                                                                                                                \
        for (; i < count; i++) {                                                                                         \
            float a = from_f16(((const l_u16 *)from[0])[first + i]) SCALE;                                               \
            for (int input = 1; input < ninputs; input++) {                                                              \
                float b = from_f16(((const l_u16 *)from[input])[first + i]) SCALE;                                       \
                a = STEP;                                                                                                \
            }                                                                                                            \
            out[i] = ONE_NAN(a);                                                                                         \
        }                                                                                                                \
    }
#define EIGHT(FROM) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(FROM)))
#define ONE_OF_EIGHT(x) _mm256_blendv_ps(x, _mm256_set1_ps(NAN), _mm256_cmp_ps(x, x, _CMP_UNORD_Q))

FOLD_F16C(sum_f16, , a + b)
FOLD_F16C(product_f16, , a * b)
FOLD_F16C(premul_f16, * scale, a + b)

#define FINISH_F16C(NAME, DIVIDE)                                                                                        \
    static void NAMED(NAME)(void *to, const void *from, size_t count, int size, int64_t twist)                           \
    {                                                                                                                    \
        float divisor = (float)size;                                                                                     \
        const l_f32 *acc = from;                                                                                         \
        l_u16 *out = to;                                                                                                 \
        size_t i = 0;                                                                                                    \
        (void)divisor;                                                                                                   \
        (void)twist;                                                                                                     \
        for (; i + 8 <= count; i += 8) {                                                                                 \
            eight result = _mm256_loadu_ps((const float *)(acc + i)) DIVIDE;                                             \
            _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT));                  \
        }                                                                                                                \
        for (; i < count; i++)                                                                                           \
            out[i] = to_f16(acc[i] DIVIDE);                                                                              \
    }

FINISH_F16C(round_f16, )
FINISH_F16C(divide_f16, / divisor)

#else

FLOATS(f16, l_f32, l_u16, float, from_f16(x))
FINISH(round_f16, l_u16, l_f32, to_f16(x))
DIVIDE_HALVES(f16)

#endif

#include "kernel_table.h"
