"""What users configure: settings, and the job, gate and layout files."""
