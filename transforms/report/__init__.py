"""`report.html`: what is gathered from a dataset, and how it is drawn as one page."""
