/* The kernels: the loops of kernel_loops.h, compiled for several instruction sets, of which the best one serves. */

#include "kernels.h"

#include "folds.h"

typedef struct {
    const char *op, *dtype;
    hk_fold *fold;
    hk_finisher *finisher;
    size_t itemsize, wide, reals;
    int64_t twist;
} entry;

/* --- the instruction sets ---------------------------------------------------------------------------------------- */

#define HK_SET baseline
#include "kernel_loops.h"
#undef HK_SET

/* Sanitized builds take long with all of them. */
#if defined(__x86_64__) && (defined(HK_ALL_SETS) || !(defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)))
#define HK_X86
#include <cpuid.h>
#include <immintrin.h>

typedef float eight __attribute__((vector_size(32)));
#define HK_F16C

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif
#define HK_SET avx2
#include "kernel_loops.h"
#undef HK_SET
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c")
#endif
#define HK_SET avx512
#include "kernel_loops.h"
#undef HK_SET
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* Older compilers have no name for F16C. */
static bool has_avx2(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && has_avx2();
}
#endif

static bool always(void) { return true; }

enum { ROWS = sizeof table_baseline / sizeof *table_baseline };

/* Best first. */
static const struct set {
    const char *name;
    const entry *table;
    bool (*present)(void);
} sets[] = {
#ifdef HK_X86
    {"avx512", table_avx512, has_avx512},
    {"avx2", table_avx2, has_avx2},
#endif
    {"baseline", table_baseline, always},
};

static const struct set *chosen; /* NULL until somebody asks; threads that ask at once come to the same answer */

bool hk_kernels_use(const char *name)
{
#ifdef HK_X86
    __builtin_cpu_init();
#endif
    for (size_t at = 0; at < sizeof sets / sizeof *sets; at++)
        if ((name == NULL || strcmp(sets[at].name, name) == 0) && sets[at].present()) {
            __atomic_store_n(&chosen, &sets[at], __ATOMIC_RELAXED);
            return true;
        }
    return false;
}

static const struct set *serving(void)
{
    if (__atomic_load_n(&chosen, __ATOMIC_RELAXED) == NULL)
        hk_kernels_use(NULL);
    return __atomic_load_n(&chosen, __ATOMIC_RELAXED);
}

const char *hk_kernels_describe(void) { return serving()->name; }

/* --- using them -------------------------------------------------------------------------------------------------- */

bool hk_kernel_find(hk_kernel *kernel, const char *op, double factor, const char *dtype)
{
    const entry *table = serving()->table;
    for (size_t row = 0; row < ROWS; row++)
        if (strcmp(table[row].op, op) == 0 && strcmp(table[row].dtype, dtype) == 0) {
            const entry *of = &table[row];
            *kernel = (hk_kernel){of->fold, of->finisher, of->itemsize, of->wide, of->reals, factor, of->twist};
            return true;
        }
    return false;
}

void hk_reduce(const hk_kernel *kernel, void *acc, const void *const *inputs, int ninputs, size_t count)
{
    kernel->fold(acc, inputs, ninputs, 0, count * kernel->reals, kernel->factor, kernel->twist);
}

void hk_finish(const hk_kernel *kernel, void *out, const void *acc, size_t count, int size)
{
    if (kernel->finisher)
        kernel->finisher(out, acc, count * kernel->reals, size, kernel->twist);
    else if (out != acc && count > 0)
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
    for (size_t start = 0; start < count; start += PIECE) {
        size_t length = count - start < PIECE ? count - start : PIECE;
        kernel->fold(acc, inputs, ninputs, start * kernel->reals, length * kernel->reals, kernel->factor, kernel->twist);
        hk_finish(kernel, (char *)out + start * kernel->itemsize, acc, length, size);
    }
}
