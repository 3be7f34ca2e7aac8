/* Which fold serves which op and dtype. Part of kernels.c, whose functions it lists. */

typedef struct {
    const char *op, *dtype;
    hk_fold *fold;
    hk_finisher *finisher;
    size_t itemsize, wide, reals;
} entry;

#define ROW(OP, DTYPE, FOLD_, FINISHER, ITEMSIZE, WIDE, REALS) {OP, DTYPE, FOLD_, FINISHER, ITEMSIZE, WIDE, REALS},
#define LOGICAL_ROWS(DTYPE, TRUTH_, NBYTES)                                                                              \
    ROW("LAND", DTYPE, and_##TRUTH_, truth_##TRUTH_, NBYTES, NBYTES, 1)                                                  \
    ROW("LOR", DTYPE, or_##TRUTH_, truth_##TRUTH_, NBYTES, NBYTES, 1)                                                    \
    ROW("LXOR", DTYPE, xor_##TRUTH_, truth_##TRUTH_, NBYTES, NBYTES, 1)
#define LOCATING_ROWS(DTYPE, NAME, NBYTES)                                                                               \
    ROW("MINLOC", DTYPE, minloc_##NAME, NULL, NBYTES, NBYTES, 1)                                                         \
    ROW("MAXLOC", DTYPE, maxloc_##NAME, NULL, NBYTES, NBYTES, 1)
/* Bitwise folds count bytes: `reals` of them are an element. */
#define INTEGER_ROWS(DTYPE, NAME, TRUTH_, NBYTES)                                                                        \
    ROW("SUM", DTYPE, sum_##NAME, NULL, NBYTES, NBYTES, 1)                                                               \
    ROW("PRODUCT", DTYPE, product_##NAME, NULL, NBYTES, NBYTES, 1)                                                       \
    ROW("MIN", DTYPE, min_##NAME, NULL, NBYTES, NBYTES, 1)                                                               \
    ROW("MAX", DTYPE, max_##NAME, NULL, NBYTES, NBYTES, 1)                                                               \
    ROW("BAND", DTYPE, and_bits, NULL, NBYTES, NBYTES, NBYTES)                                                           \
    ROW("BOR", DTYPE, or_bits, NULL, NBYTES, NBYTES, NBYTES)                                                             \
    ROW("BXOR", DTYPE, xor_bits, NULL, NBYTES, NBYTES, NBYTES)                                                           \
    LOGICAL_ROWS(DTYPE, TRUTH_, NBYTES)                                                                                  \
    LOCATING_ROWS(DTYPE, NAME, NBYTES)
#define SUM_ROWS(DTYPE, NAME, DIVIDE, ROUND, NBYTES, WIDE, REALS)                                                        \
    ROW("SUM", DTYPE, sum_##NAME, ROUND, NBYTES, WIDE, REALS)                                                            \
    ROW("AVG", DTYPE, sum_##NAME, DIVIDE, NBYTES, WIDE, REALS)                                                           \
    ROW("PREMUL_SUM", DTYPE, premul_##NAME, ROUND, NBYTES, WIDE, REALS)
#define FLOAT_ROWS(DTYPE, NAME, DIVIDE, ROUND, NBYTES, WIDE)                                                             \
    SUM_ROWS(DTYPE, NAME, DIVIDE, ROUND, NBYTES, WIDE, 1)                                                                \
    ROW("PRODUCT", DTYPE, product_##NAME, ROUND, NBYTES, WIDE, 1)                                                        \
    ROW("MIN", DTYPE, min_##NAME, NULL, NBYTES, NBYTES, 1)                                                               \
    ROW("MAX", DTYPE, max_##NAME, NULL, NBYTES, NBYTES, 1)                                                               \
    LOGICAL_ROWS(DTYPE, NAME, NBYTES)                                                                                    \
    LOCATING_ROWS(DTYPE, NAME, NBYTES)
#define BOOL_ROW(OP, FOLD_) ROW(OP, "bool", FOLD_, truth_w8, 1, 1, 1)

static const entry table[] = {
    BOOL_ROW("SUM", or_w8) BOOL_ROW("MAX", or_w8) BOOL_ROW("BOR", or_w8) BOOL_ROW("LOR", or_w8)
    BOOL_ROW("PRODUCT", and_w8) BOOL_ROW("MIN", and_w8) BOOL_ROW("BAND", and_w8) BOOL_ROW("LAND", and_w8)
    BOOL_ROW("BXOR", xor_w8) BOOL_ROW("LXOR", xor_w8)
    INTEGER_ROWS("int8", i8, w8, 1) INTEGER_ROWS("uint8", u8, w8, 1)
    INTEGER_ROWS("int16", i16, w16, 2) INTEGER_ROWS("uint16", u16, w16, 2)
    INTEGER_ROWS("int32", i32, w32, 4) INTEGER_ROWS("uint32", u32, w32, 4)
    INTEGER_ROWS("int64", i64, w64, 8) INTEGER_ROWS("uint64", u64, w64, 8)
    FLOAT_ROWS("float16", f16, divide_f16, round_f16, 2, 4) FLOAT_ROWS("bfloat16", bf16, divide_bf16, round_bf16, 2, 4)
    FLOAT_ROWS("float32", f32, divide_f32, NULL, 4, 4) FLOAT_ROWS("float64", f64, divide_f64, NULL, 8, 8)
    SUM_ROWS("complex64", f32, divide_f32, NULL, 8, 8, 2) SUM_ROWS("complex128", f64, divide_f64, NULL, 16, 16, 2)
    ROW("PRODUCT", "complex64", product_c64, NULL, 8, 8, 1) ROW("PRODUCT", "complex128", product_c128, NULL, 16, 16, 1)
    LOGICAL_ROWS("complex64", c64, 8) LOGICAL_ROWS("complex128", c128, 16)
};

bool hk_kernel_find(hk_kernel *kernel, const char *op, double factor, const char *dtype)
{
    for (size_t row = 0; row < sizeof table / sizeof *table; row++)
        if (strcmp(table[row].op, op) == 0 && strcmp(table[row].dtype, dtype) == 0) {
            const entry *found = &table[row];
            *kernel = (hk_kernel){found->fold, found->finisher, found->itemsize, found->wide, found->reals, factor};
            return true;
        }
    return false;
}
