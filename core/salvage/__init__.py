"""Saves the sound records of a damaged dataset."""
