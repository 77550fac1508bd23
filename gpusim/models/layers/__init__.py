"""Layers: what a model's graph is made of, one record each; shapes, weights and multiply-adds follow from the inputs."""
