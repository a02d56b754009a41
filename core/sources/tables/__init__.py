"""Reads tables that name images: CSV, TSV, JSON Lines and Parquet, and the formats that are made of them."""
