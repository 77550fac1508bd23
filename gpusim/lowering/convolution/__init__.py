"""Convolutions as sequences of launches: an implicit multiplication, and what libraries launch around it."""
