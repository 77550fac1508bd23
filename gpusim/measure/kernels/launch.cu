// Kernels that do nothing, or nothing for a while: what remains is the cost of starting them.

extern "C" __global__ void empty() {}

extern "C" __global__ void spin(long long cycles) {
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
}
