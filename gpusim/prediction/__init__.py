"""The flow of a prediction: kernel selection, lowering, simulation, sustained clock, result."""
