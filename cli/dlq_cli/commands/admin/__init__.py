"""`dlq admin`: commands of operators and administrators, one module for each subject."""
