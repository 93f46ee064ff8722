"""Push notifications: at most 120 characters for one customer in one situation."""
