"""Saves the sound records of a damaged dataset: plain functions, and a transform that runs them in Beam."""
