"""The one flow: kernel choice, lowering, simulation, sustained clock, result."""
