"""What a kernel does to the numbers: formats, 2:4 sparsity, its order of summation, training in low precision."""
