// Dependent loads: each one's result is the next one's address, so the time of a step is a latency.

// Steps before the count begins fill L1 with what it can hold: no kernel finds there what another left.
#define STEPS(LOAD, COUNT)                                                                                 \
    for (int step = 0; step < COUNT; step += 8) {                                                          \
        _Pragma("unroll") for (int i = 0; i < 8; ++i) asm volatile(LOAD " %0, [%0];" : "+l"(at));          \
    }

#define CHASE(NAME, LOAD)                                                                                  \
    extern "C" __global__ void NAME(unsigned long long *cursor, int warming, int steps,                    \
                                    long long *elapsed_cycles) {                                           \
        unsigned long long at = *cursor;                                                                   \
        STEPS(LOAD, warming)                                                                               \
        const long long begin = clock64();                                                                 \
        STEPS(LOAD, steps)                                                                                 \
        asm volatile("" ::"l"(at) : "memory");                                                             \
        *elapsed_cycles = clock64() - begin;                                                               \
        *cursor = at;                                                                                      \
    }

CHASE(chase_l1, "ld.global.ca.u64")
CHASE(chase_l2, "ld.global.cg.u64")

// The same through a ring of 32-bit addresses in shared memory, one per word.
extern "C" __global__ void chase_shared(int words, int steps, long long *elapsed_cycles, unsigned *sink) {
    extern __shared__ unsigned ring[];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(ring));
    for (int i = threadIdx.x; i < words; i += blockDim.x) ring[i] = base + 4u * ((i + 1) % words);
    __syncthreads();
    if (threadIdx.x != 0) return;
    unsigned at = base;
    const long long begin = clock64();
    for (int step = 0; step < steps; step += 8) {
#pragma unroll
        for (int i = 0; i < 8; ++i) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
    }
    asm volatile("" ::"r"(at) : "memory");
    *elapsed_cycles = clock64() - begin;
    *sink = at;
}
