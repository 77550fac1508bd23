"""Matrix multiplication: from a workload and a kernel to a schedule in closed form, and from that to launches."""
