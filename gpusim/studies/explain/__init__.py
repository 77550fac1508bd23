"""Why a workload takes its time: parts of it, what faster hardware would do, and what would make it faster."""
