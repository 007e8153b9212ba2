"""Text for people: short, and for a terminal without escape codes."""

import statistics

# As much of a wrong value as a message repeats, and of a line as is shown.
_LONGEST_ECHO = 60
_LONGEST_LINE = 900


def printable(text):
    """Text for a terminal, which no escape code in it shall reach."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def is_utf8(text):
    """Whether text is UTF-8: a name of a file may be of any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shortened(value, most=_LONGEST_ECHO):
    """A value for a message, which stays short and in one line."""
    text = printable(str(value))
    if len(text) > most:
        text = f"{text[:most]}... ({len(text)} characters)"
    return text


def one_line(text, most=_LONGEST_LINE):
    """A message in one line, of a long one the beginning and the end."""
    text = printable(text)
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return text


def mean_and_deviation(numbers):
    """Such as 0.69 ± 0.05, the sample deviation; of one number, that alone."""
    text = f"{statistics.mean(numbers):.2f}"
    if len(numbers) > 1:
        text += f" ± {statistics.stdev(numbers):.2f}"
    return text


def listed(names, most=5):
    """The first few names, and how many more there are: for a message."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(printable(str(name)) for name in names[:most]) + more
