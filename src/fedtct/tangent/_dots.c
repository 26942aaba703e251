/* Many short dot products between sampled pieces of two arrays, a row of them a sample.
 *
 * out[s][j] = sum over t < length of g[s][g_at[j] + t] * x[s][x_at[j] + t]
 *
 * This is what the sampled entries of every layer's weight gradient come down to. The loop over samples is shared
 * among threads; a sample's arrays fit the cache, and the compiler turns the inner loops into vector instructions, for
 * the processor that is there.
 */
#include <Python.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif

#define DEFINE_DOTS(NAME, REAL)                                                                                        \
    FOR_EVERY_PROCESSOR static void NAME##_of_sample(const REAL *restrict g, const REAL *restrict x,                   \
                                                     const int32_t *restrict g_at, const int32_t *restrict x_at,       \
                                                     REAL *restrict out, int64_t entries, int64_t length) {            \
        if (length == 1) {                                                                                             \
            for (int64_t j = 0; j < entries; j++) out[j] = g[g_at[j]] * x[x_at[j]];                                    \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t j = 0; j < entries; j++) {                                                                        \
            const REAL *a = g + g_at[j], *b = x + x_at[j];                                                             \
            REAL sum = 0;                                                                                              \
            _Pragma("omp simd reduction(+ : sum)")                                                                     \
            for (int64_t t = 0; t < length; t++) sum += a[t] * b[t];                                                   \
            out[j] = sum;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    void NAME(const REAL *g, const REAL *x, const int32_t *g_at, const int32_t *x_at, REAL *out, int64_t samples,      \
              int64_t entries, int64_t length, int64_t g_stride, int64_t x_stride, int64_t out_stride, int threads) {  \
        _Pragma("omp parallel for num_threads(threads) schedule(static)")                                              \
        for (int64_t s = 0; s < samples; s++)                                                                          \
            NAME##_of_sample(g + s * g_stride, x + s * x_stride, g_at, x_at, out + s * out_stride, entries, length);   \
    }

DEFINE_DOTS(dots_float, float)
DEFINE_DOTS(dots_double, double)

/* Nothing is called through Python's own interface: the module exists so that an installation builds and finds it. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_dots", "Sampled dot products.", -1, NULL};

PyMODINIT_FUNC PyInit__dots(void) { return PyModule_Create(&module); }
