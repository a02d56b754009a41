"""`report.html`: gathers facts about a dataset and draws them as one page."""
