"""The computations of cases: functions of plain words, apart from the sentences about results."""
