"""Passes: what the forward pass, the backward pass and the update of a model launch, in order."""
