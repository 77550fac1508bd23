"""The simulator: a discrete-event simulation of SMs that interpret warp programs."""
