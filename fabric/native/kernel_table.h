/* Which fold serves which op and dtype. Part of kernel_loops.h, whose functions it lists. */

#define ROW(OP, DTYPE, FOLD_, FINISHER, ITEMSIZE, WIDE, REALS, TWIST)                                                    \
    {OP, DTYPE, NAMED(FOLD_), FINISHER, ITEMSIZE, WIDE, REALS, TWIST},
#define LOGICAL_ROWS(DTYPE, NAME, NBYTES, REALS, TRUE_)                                                                  \
    ROW("LAND", DTYPE, and_##NAME, NAMED(truth_##NAME), NBYTES, NBYTES, REALS, TRUE_)                                    \
    ROW("LOR", DTYPE, or_##NAME, NAMED(truth_##NAME), NBYTES, NBYTES, REALS, TRUE_)                                      \
    ROW("LXOR", DTYPE, xor_##NAME, NAMED(truth_##NAME), NBYTES, NBYTES, REALS, TRUE_)
/* What MIN compares is as it is or has the bits of LEAST inverted, and for MAX then all of them. */
#define ORDERED_ROWS(DTYPE, NAME, NBYTES, LEAST)                                                                         \
    ROW("MIN", DTYPE, extreme_##NAME, NULL, NBYTES, NBYTES, 1, LEAST)                                                    \
    ROW("MAX", DTYPE, extreme_##NAME, NULL, NBYTES, NBYTES, 1, ~LEAST)                                                   \
    ROW("MINLOC", DTYPE, locate_##NAME, NULL, NBYTES, NBYTES, 1, LEAST)                                                  \
    ROW("MAXLOC", DTYPE, locate_##NAME, NULL, NBYTES, NBYTES, 1, ~LEAST)
/* Bitwise folds count bytes: `reals` of them are an element. */
#define INTEGER_ROWS(DTYPE, NAME, NBYTES, LEAST)                                                                         \
    ROW("SUM", DTYPE, sum_##NAME, NULL, NBYTES, NBYTES, 1, 0)                                                            \
    ROW("PRODUCT", DTYPE, product_##NAME, NULL, NBYTES, NBYTES, 1, 0)                                                    \
    ROW("BAND", DTYPE, and_bits, NULL, NBYTES, NBYTES, NBYTES, 0)                                                        \
    ROW("BOR", DTYPE, or_bits, NULL, NBYTES, NBYTES, NBYTES, 0)                                                          \
    ROW("BXOR", DTYPE, xor_bits, NULL, NBYTES, NBYTES, NBYTES, 0)                                                        \
    LOGICAL_ROWS(DTYPE, NAME, NBYTES, 1, 1)                                                                              \
    ORDERED_ROWS(DTYPE, NAME, NBYTES, (int64_t)LEAST)
#define SUM_ROWS(DTYPE, NAME, DIVIDE, ROUND, NBYTES, WIDE, REALS)                                                        \
    ROW("SUM", DTYPE, sum_##NAME, ROUND, NBYTES, WIDE, REALS, 0)                                                         \
    ROW("AVG", DTYPE, sum_##NAME, NAMED(DIVIDE), NBYTES, WIDE, REALS, 0)                                                 \
    ROW("PREMUL_SUM", DTYPE, premul_##NAME, ROUND, NBYTES, WIDE, REALS, 0)
#define FLOAT_ROWS(DTYPE, NAME, WORD, DIVIDE, ROUND, NBYTES, WIDE, TRUE_)                                                \
    SUM_ROWS(DTYPE, NAME, DIVIDE, ROUND, NBYTES, WIDE, 1)                                                                \
    ROW("PRODUCT", DTYPE, product_##NAME, ROUND, NBYTES, WIDE, 1, 0)                                                     \
    LOGICAL_ROWS(DTYPE, WORD, NBYTES, 1, TRUE_)                                                                          \
    ORDERED_ROWS(DTYPE, NAME, NBYTES, (int64_t)0)
#define COMPLEX_ROWS(DTYPE, NAME, REAL, DIVIDE, NBYTES, TRUE_)                                                           \
    SUM_ROWS(DTYPE, REAL, DIVIDE, NULL, NBYTES, NBYTES, 2)                                                               \
    ROW("PRODUCT", DTYPE, product_##NAME, NULL, NBYTES, NBYTES, 2, 0)                                                    \
    LOGICAL_ROWS(DTYPE, NAME, NBYTES, 2, TRUE_)
#define BOOL_ROW(OP, FOLD_) ROW(OP, "bool", FOLD_, NAMED(truth_w8), 1, 1, 1, 1)

static const entry NAMED(table)[] = {
    BOOL_ROW("SUM", or_w8) BOOL_ROW("MAX", or_w8) BOOL_ROW("BOR", or_w8) BOOL_ROW("LOR", or_w8)
    BOOL_ROW("PRODUCT", and_w8) BOOL_ROW("MIN", and_w8) BOOL_ROW("BAND", and_w8) BOOL_ROW("LAND", and_w8)
    BOOL_ROW("BXOR", xor_w8) BOOL_ROW("LXOR", xor_w8)
    INTEGER_ROWS("int8", w8, 1, 0) INTEGER_ROWS("uint8", w8, 1, INT8_MIN)
    INTEGER_ROWS("int16", w16, 2, 0) INTEGER_ROWS("uint16", w16, 2, INT16_MIN)
    INTEGER_ROWS("int32", w32, 4, 0) INTEGER_ROWS("uint32", w32, 4, INT32_MIN)
    INTEGER_ROWS("int64", w64, 8, 0) INTEGER_ROWS("uint64", w64, 8, INT64_MIN)
    FLOAT_ROWS("float16", f16, w16, divide_f16, NAMED(round_f16), 2, 4, 0x3c00)
    FLOAT_ROWS("bfloat16", bf16, w16, divide_bf16, NAMED(round_bf16), 2, 4, 0x3f80)
    FLOAT_ROWS("float32", f32, w32, divide_f32, NULL, 4, 4, 0x3f800000)
    FLOAT_ROWS("float64", f64, w64, divide_f64, NULL, 8, 8, 0x3ff0000000000000)
    COMPLEX_ROWS("complex64", c64, f32, divide_f32, 8, 0x3f800000)
    COMPLEX_ROWS("complex128", c128, f64, divide_f64, 16, 0x3ff0000000000000)
};
