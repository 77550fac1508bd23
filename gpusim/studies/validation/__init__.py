"""Predictions compared with measured runs: errors by table and stratum, and their causes."""
