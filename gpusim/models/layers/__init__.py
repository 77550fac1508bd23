"""Layers, one record each: shapes, weights and multiply-adds follow from their inputs."""
