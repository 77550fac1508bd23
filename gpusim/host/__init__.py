"""The host: what launches, gaps and timing methods add to the time of kernels."""
