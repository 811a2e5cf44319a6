"""What cases compute: functions of plain words, apart from the sentences about their results."""
