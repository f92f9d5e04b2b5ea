"""What the measurements of reliability share: processes, load, the right answers, vital signs, receipts."""
