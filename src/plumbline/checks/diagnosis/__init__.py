"""What is wrong with a run, and what to do next: functions of its records, whoever made them."""
