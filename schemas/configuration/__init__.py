"""What users configure: gate, job and layout files, as typed models."""
