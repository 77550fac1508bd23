"""The hardware: a GPU as validated numbers, its machine model at a clock, occupancy."""
