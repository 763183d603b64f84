"""Common cron expressions in plain words."""

import re

import msgspec

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MOST_TIMES = 4

_NUMBER = re.compile(r"\d+")
_STEP = re.compile(r"\*/(\d+)")


class CronDescription(msgspec.Struct, frozen=True):
    """An expression in words, and whether it depends on local time and so on a time zone."""

    text: str
    of_clock: bool


def describe_cron(text: str) -> CronDescription | None:
    """Five cron fields in words; None if they have no common form."""
    minute, hour, day, month, weekday = text.upper().split()
    if (day, month, weekday) == ("*", "*", "*") and (found := _interval(minute, hour)):
        return CronDescription(found, of_clock=hour != "*")
    times, days = _times(minute, hour), _days(day, month, weekday)
    return CronDescription(f"{days} at {times}", of_clock=True) if times and days else None


def _interval(minute: str, hour: str) -> str | None:
    if hour == "*":
        if minute == "*":
            return "every minute"
        if step := _even_step(minute, 60):
            return f"every {step} minutes" if step > 1 else "every minute"
        return f"every hour at minute {int(minute)}" if _NUMBER.fullmatch(minute) else None
    if (step := _even_step(hour, 24)) and step > 1 and _NUMBER.fullmatch(minute):
        return f"every {step} hours at minute {int(minute)}"
    return None


def _even_step(field: str, whole: int) -> int | None:
    """The step of `*/n` if it divides the hour or the day evenly."""
    found = _STEP.fullmatch(field)
    return int(found[1]) if found and int(found[1]) < whole and whole % int(found[1]) == 0 else None


def _times(minute: str, hour: str) -> str | None:
    hours = _numbers(hour)
    if hours is None or not _NUMBER.fullmatch(minute) or len(hours) > MOST_TIMES:
        return None
    return _join_words([f"{one:02}:{int(minute):02}" for one in hours])


def _days(day: str, month: str, weekday: str) -> str | None:
    if weekday != "*":
        return _weekdays(weekday) if (day, month) == ("*", "*") else None
    if day == "*":
        return "every day" if month == "*" else None
    if month == "*":
        return _monthly(day)
    months = _numbers(_replace_names(month, MONTHS, 1))
    if months is None or not _NUMBER.fullmatch(day) or int(day) > min(DAYS[one - 1] for one in months):
        return None
    return "every year on " + _join_words([f"{int(day)} {MONTHS[one - 1]}" for one in months])


def _monthly(day: str) -> str | None:
    if day == "L":
        return "on the last day of every month"
    numbers = _numbers(day)
    if numbers is None:
        return None
    months = "every month" if max(numbers) <= min(DAYS) else "every month that has it"
    return f"on the {_join_words([_ordinal(one) for one in numbers])} of {months}"


def _weekdays(field: str) -> str | None:
    field = _replace_names(field, WEEKDAYS, 0)
    if span := re.fullmatch(r"(\d)-(\d)", field):
        return f"{_weekday(span[1])} to {_weekday(span[2])}"
    numbers = _numbers(field)
    if numbers is None:
        return None
    named = list(dict.fromkeys(_weekday(one) for one in numbers))
    return ("every " if len(named) == 1 else "") + _join_words(named)


def _weekday(number: str | int) -> str:
    return WEEKDAYS[int(number) % 7]


def _replace_names(field: str, names: tuple[str, ...], first: int) -> str:
    """The field with its short names replaced by numbers."""
    for number, name in enumerate(names, first):
        field = field.replace(name[:3].upper(), str(number))
    return field


def _numbers(field: str) -> list[int] | None:
    """The numbers of a list such as `1,15`, sorted; None if the field has another form."""
    if not all(_NUMBER.fullmatch(one) for one in field.split(",")):
        return None
    return sorted({int(one) for one in field.split(",")})


def _ordinal(number: int) -> str:
    if 11 <= number <= 13:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _join_words(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
