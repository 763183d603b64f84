"""Schedules: cron expressions and intervals, through changes of clocks."""
