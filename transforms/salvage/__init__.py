"""Saves what is sound of a damaged dataset: plain functions, and a transform that has Beam run them."""
