"""What a host adds to the time of a kernel: launches, gaps, and the way of timing."""
