"""Format numbers for terminal and report: costs rounded up, sizes and times with a unit."""

from __future__ import annotations

import math

from parley.privacy.accounting.rounding import format_rounded_up

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: float | None, digits: int = 3) -> str:
    """Format ``value`` for a reader, to ``digits`` significant digits.

    >>> (format_number(0.0839047), format_number(1e-05), format_number(2.43e-05),
    ... format_number(-70000), format_number(None))
    ('0.0839', '10⁻⁵', '2.43 × 10⁻⁵', '−70,000', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        if abs(value) >= 10**digits or float(value).is_integer():
            return f"{value:,.0f}".replace("-", "−")
        places = digits - 1 - math.floor(math.log10(abs(value)))
        return f"{value:.{places}f}".replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return format_power(mantissa.rstrip("0").rstrip(".").replace("-", "−"), exponent)


def format_power(mantissa: str, exponent: str) -> str:
    """Format a mantissa times ten to the exponent."""
    ten = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    return ten if mantissa == "1" else f"{mantissa} × {ten}"


def format_epsilon(value: float | None) -> str:
    """Format ε to four significant digits, rounded up: never less than what was charged.

    >>> (format_epsilon(1.98441), format_epsilon(2.0), format_epsilon(0.1 + 0.2),
    ... format_epsilon(None))
    ('1.985', '2', '0.3', '–')
    """
    if value is None or not math.isfinite(value):
        return format_number(value)
    return format_rounded_up(value, 4)


def format_cost(value: float | None, digits: int = 3) -> str:
    """Format a number rounded up: δ, ρ, and all else that bounds what may be learned.

    >>> format_cost(1.2341e-05), format_cost(1e-05), format_cost(2.7182), format_cost(None)
    ('1.24 × 10⁻⁵', '10⁻⁵', '2.72', '–')
    """
    if value is None or not math.isfinite(value):
        return format_number(value, digits)
    return format_number(float(format_rounded_up(value, digits)), digits)


def format_duration(seconds: float | None) -> str:
    """Format a time span.

    >>> format_duration(0.0074), format_duration(4.2), format_duration(192), format_duration(7300)
    ('7.4 ms', '4.2 s', '3 min 12 s', '2 h 1 min')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_bytes(count: float) -> str:
    """Format a size in powers of ten.

    >>> format_bytes(812), format_bytes(41_600), format_bytes(8_320_000)
    ('812 B', '41.6 kB', '8.32 MB')
    """
    for unit_name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{format_number(count / size)} {unit_name}"
    return f"{count:.0f} B"
