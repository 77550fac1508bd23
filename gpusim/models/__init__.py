"""Models: graphs of layers as data, and what a step of one computes."""
