/* The kernels: one fold for each op and kind of number. See kernels.h, and `hocket.fabric.numpy_kernels` for what the
 * bits of a result must be. */

#include "kernels.h"

#include "folds.h"

/* --- integers ---------------------------------------------------------------------------------------------------- */

#define INTEGER(NAME, TYPE, UNSIGNED)                                                                                    \
    FOLD(sum_##NAME, UNSIGNED, UNSIGNED, UNSIGNED, x, (UNSIGNED)(a + b), w)                                              \
    FOLD(product_##NAME, UNSIGNED, UNSIGNED, UNSIGNED, x, (UNSIGNED)(a * (uint64_t)b), w)                                \
    FOLD(min_##NAME, TYPE, TYPE, TYPE, x, b < a ? b : a, w)                                                              \
    FOLD(max_##NAME, TYPE, TYPE, TYPE, x, b > a ? b : a, w)

INTEGER(i8, l_i8, l_u8)
INTEGER(i16, l_i16, l_u16)
INTEGER(i32, l_i32, l_u32)
INTEGER(i64, l_i64, l_u64)
INTEGER(u8, l_u8, l_u8)
INTEGER(u16, l_u16, l_u16)
INTEGER(u32, l_u32, l_u32)
INTEGER(u64, l_u64, l_u64)

/* Bits are bits: a tensor is folded as bytes. */
FOLD(and_bits, l_u8, l_u8, l_u8, x, (l_u8)(a & b), w)
FOLD(or_bits, l_u8, l_u8, l_u8, x, (l_u8)(a | b), w)
FOLD(xor_bits, l_u8, l_u8, l_u8, x, (l_u8)(a ^ b), w)

/* --- floats ------------------------------------------------------------------------------------------------------ */

/* Whatever NaNs went in, one comes out. */
#define ONE_NAN(w) ((w) == (w) ? (w) : NAN)

#define FLOATS(NAME, OUT, IN, WORK, LIFT)                                                                                \
    FOLD(sum_##NAME, OUT, IN, WORK, LIFT, a + b, ONE_NAN(w))                                                             \
    FOLD(product_##NAME, OUT, IN, WORK, LIFT, a * b, ONE_NAN(w))                                                         \
    FOLD(premul_##NAME, OUT, IN, WORK, (LIFT) * (WORK)factor, a + b, ONE_NAN(w))

FLOATS(f32, l_f32, l_f32, float, x)
FLOATS(f64, l_f64, l_f64, double, x)
FLOATS(f16, l_f32, l_u16, float, from_f16(x))
FLOATS(bf16, l_f32, l_u16, float, from_bf16(x))

#define EXTREMES(NAME, TYPE, WORK, LEAST, MOST)                                                                          \
    FOLD(min_##NAME, TYPE, TYPE, WORK, key_##NAME(x, LEAST), b < a ? b : a, bits_##NAME(w, LEAST))                       \
    FOLD(max_##NAME, TYPE, TYPE, WORK, key_##NAME(x, MOST), b > a ? b : a, bits_##NAME(w, MOST))

EXTREMES(f16, l_i16, int16_t, INT16_MIN, INT16_MAX)
EXTREMES(bf16, l_i16, int16_t, INT16_MIN, INT16_MAX)
EXTREMES(f32, l_i32, int32_t, INT32_MIN, INT32_MAX)
EXTREMES(f64, l_i64, int64_t, INT64_MIN, INT64_MAX)

/* The textbook's four products; a fused one would make a * b another number than b * a. */
#define COMPLEX_PRODUCT(NAME, LOOSE_REAL, REAL)                                                                          \
    static void product_##NAME(void *to, const void *const *from, int ninputs, size_t count, double factor)              \
    {                                                                                                                    \
        (void)factor;                                                                                                    \
        LOOSE_REAL *out = to;                                                                                            \
        for (size_t i = 0; i < 2 * count; i += 2) {                                                                      \
            REAL real = ((const LOOSE_REAL *)from[0])[i], imaginary = ((const LOOSE_REAL *)from[0])[i + 1];              \
            for (int input = 1; input < ninputs; input++) {                                                              \
                REAL other = ((const LOOSE_REAL *)from[input])[i], twin = ((const LOOSE_REAL *)from[input])[i + 1];      \
                REAL next = real * other - imaginary * twin;                                                             \
                imaginary = real * twin + imaginary * other;                                                             \
                real = next;                                                                                             \
            }                                                                                                            \
            out[i] = ONE_NAN(real);                                                                                      \
            out[i + 1] = ONE_NAN(imaginary);                                                                             \
        }                                                                                                                \
    }

COMPLEX_PRODUCT(c64, l_f32, float)
COMPLEX_PRODUCT(c128, l_f64, double)

/* --- truth ------------------------------------------------------------------------------------------------------- */

typedef struct __attribute__((packed, may_alias)) { float real, imaginary; } l_c64;
typedef struct __attribute__((packed, may_alias)) { double real, imaginary; } l_c128;

#define TRUTH(NAME, TYPE, IS_TRUE, OF_TRUTH)                                                                             \
    FOLD(and_##NAME, TYPE, TYPE, uint8_t, IS_TRUE, (uint8_t)(a & b), OF_TRUTH)                                           \
    FOLD(or_##NAME, TYPE, TYPE, uint8_t, IS_TRUE, (uint8_t)(a | b), OF_TRUTH)                                            \
    FOLD(xor_##NAME, TYPE, TYPE, uint8_t, IS_TRUE, (uint8_t)(a ^ b), OF_TRUTH)

TRUTH(w8, l_u8, x != 0, w)
TRUTH(w16, l_u16, x != 0, w)
TRUTH(w32, l_u32, x != 0, w)
TRUTH(w64, l_u64, x != 0, w)
TRUTH(f16, l_u16, (x & 0x7fff) != 0, w ? 0x3c00 : 0)
TRUTH(bf16, l_u16, (x & 0x7fff) != 0, w ? 0x3f80 : 0)
TRUTH(f32, l_f32, x != 0, w)
TRUTH(f64, l_f64, x != 0, w)
TRUTH(c64, l_c64, x.real != 0 || x.imaginary != 0, ((l_c64){w, 0}))
TRUTH(c128, l_c128, x.real != 0 || x.imaginary != 0, ((l_c128){w, 0}))

/* --- (value, index) pairs ---------------------------------------------------------------------------------------- */

/* Whether (other, other_index) takes the place of (value, index): by value, of which a NaN is the best there is; of
 * equal ones by index; what then still differs by bits. BETTER tells whether p is better than q. */
#define LOCATE(NAME, TYPE, BITS, NUMBER, OF, BETTER, UNIFY)                                                              \
    INLINE bool takes_##NAME(const TYPE *mine, const TYPE *other)                                                        \
    {                                                                                                                    \
        NUMBER value = OF(mine[0]), rival = OF(other[0]), index = OF(mine[1]), rival_index = OF(other[1]);               \
        { NUMBER p = rival, q = value; if ((BETTER || p != p) && q == q) return true; }                                  \
        { NUMBER p = value, q = rival; if ((BETTER || p != p) && q == q) return false; }                                 \
        if (rival_index < index) return true;                                                                            \
        if (index < rival_index) return false;                                                                           \
        for (int column = 0; column < 2; column++) {                                                                     \
            BITS bits, rival_bits;                                                                                       \
            memcpy(&bits, &mine[column], sizeof bits);                                                                   \
            memcpy(&rival_bits, &other[column], sizeof bits);                                                            \
            if (bits != rival_bits) return rival_bits < bits;                                                            \
        }                                                                                                                \
        return false;                                                                                                    \
    }                                                                                                                    \
    static void NAME(void *to, const void *const *from, int ninputs, size_t count, double factor)                        \
    {                                                                                                                    \
        (void)factor;                                                                                                    \
        TYPE *out = to;                                                                                                  \
        for (size_t i = 0; i + 1 < count; i += 2) {                                                                      \
            TYPE best[2] = {((const TYPE *)from[0])[i], ((const TYPE *)from[0])[i + 1]};                                 \
            for (int input = 1; input < ninputs; input++) {                                                              \
                TYPE other[2] = {((const TYPE *)from[input])[i], ((const TYPE *)from[input])[i + 1]};                    \
                if (takes_##NAME(best, other)) memcpy(best, other, sizeof best);                                         \
            }                                                                                                            \
            out[i] = UNIFY(best[0]);                                                                                     \
            out[i + 1] = UNIFY(best[1]);                                                                                 \
        }                                                                                                                \
    }

#define SAME(x) (x)
#define ONE_F16(x) (((x) & 0x7fff) > 0x7c00 ? 0x7e00 : (x))
#define ONE_BF16(x) (((x) & 0x7fff) > 0x7f80 ? 0x7fc0 : (x))
#define LOCATING(NAME, TYPE, BITS, NUMBER, OF, UNIFY)                                                                    \
    LOCATE(minloc_##NAME, TYPE, BITS, NUMBER, OF, p < q, UNIFY)                                                          \
    LOCATE(maxloc_##NAME, TYPE, BITS, NUMBER, OF, p > q, UNIFY)

LOCATING(i8, l_i8, int8_t, int8_t, SAME, SAME)
LOCATING(i16, l_i16, int16_t, int16_t, SAME, SAME)
LOCATING(i32, l_i32, int32_t, int32_t, SAME, SAME)
LOCATING(i64, l_i64, int64_t, int64_t, SAME, SAME)
LOCATING(u8, l_u8, int8_t, uint8_t, SAME, SAME)
LOCATING(u16, l_u16, int16_t, uint16_t, SAME, SAME)
LOCATING(u32, l_u32, int32_t, uint32_t, SAME, SAME)
LOCATING(u64, l_u64, int64_t, uint64_t, SAME, SAME)
LOCATING(f16, l_u16, int16_t, float, from_f16, ONE_F16)
LOCATING(bf16, l_u16, int16_t, float, from_bf16, ONE_BF16)
LOCATING(f32, l_f32, int32_t, float, SAME, ONE_NAN)
LOCATING(f64, l_f64, int64_t, double, SAME, ONE_NAN)

/* --- finishing --------------------------------------------------------------------------------------------------- */

#define FINISH(NAME, OUT, ACC, RESULT)                                                                                   \
    CLONES static void NAME(void *to, const void *from, size_t count, int size)                                          \
    {                                                                                                                    \
        (void)size;                                                                                                      \
        OUT *out = to;                                                                                                   \
        const ACC *acc = from;                                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++)                                                          \
        {                                                                                                                \
            ACC x = acc[i];                                                                                              \
            out[i] = RESULT;                                                                                             \
        }                                                                                                                \
    }

FINISH(divide_f32, l_f32, l_f32, x / (float)size)
FINISH(divide_f64, l_f64, l_f64, x / (double)size)
FINISH(round_f16, l_u16, l_f32, to_f16(x))
FINISH(round_bf16, l_u16, l_f32, to_bf16(x))
FINISH(divide_f16, l_u16, l_f32, to_f16(x / (float)size))
FINISH(divide_bf16, l_u16, l_f32, to_bf16(x / (float)size))

#define TRUTH_AGAIN(NAME)                                                                                                \
    static void truth_##NAME(void *out, const void *acc, size_t count, int size)                                         \
    {                                                                                                                    \
        (void)size;                                                                                                      \
        or_##NAME(out, &acc, 1, count, 0);                                                                               \
    }

TRUTH_AGAIN(w8)
TRUTH_AGAIN(w16)
TRUTH_AGAIN(w32)
TRUTH_AGAIN(w64)
TRUTH_AGAIN(f16)
TRUTH_AGAIN(bf16)
TRUTH_AGAIN(f32)
TRUTH_AGAIN(f64)
TRUTH_AGAIN(c64)
TRUTH_AGAIN(c128)

#include "kernel_table.h"

/* --- using them -------------------------------------------------------------------------------------------------- */

void hk_reduce(const hk_kernel *kernel, void *acc, const void *const *inputs, int ninputs, size_t count)
{
    kernel->fold(acc, inputs, ninputs, count * kernel->reals, kernel->factor);
}

void hk_finish(const hk_kernel *kernel, void *out, const void *acc, size_t count, int size)
{
    if (kernel->finisher)
        kernel->finisher(out, acc, count * kernel->reals, size);
    else if (out != acc)
        memcpy(out, acc, count * kernel->itemsize);
}

void hk_reduce_finish(const hk_kernel *kernel, void *out, const void *const *inputs, int ninputs, size_t count, int size)
{
    enum { WIDEST = 16 };
    if (!kernel->finisher) {
        hk_reduce(kernel, out, inputs, ninputs, count);
        return;
    }
    _Alignas(64) char acc[PIECE * WIDEST];
    const void *pieces[HK_MOST_INPUTS];
    for (size_t start = 0; start < count; start += PIECE) {
        size_t length = count - start < PIECE ? count - start : PIECE;
        for (int input = 0; input < ninputs; input++)
            pieces[input] = (const char *)inputs[input] + start * kernel->itemsize;
        hk_reduce(kernel, acc, pieces, ninputs, length);
        hk_finish(kernel, (char *)out + start * kernel->itemsize, acc, length, size);
    }
}

const char *hk_kernels_describe(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return "avx512";
    if (__builtin_cpu_supports("avx2"))
        return "avx2";
#endif
    return "baseline";
}
