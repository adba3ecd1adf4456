//! Dates, times and intervals: the calendar, reading, writing, arithmetic.

pub mod calendar;
pub mod format;

/// Microseconds of a day.
pub const USECS_PER_DAY: i64 = 86_400_000_000;
/// Microseconds of an hour, a minute, a second.
pub const USECS_PER_HOUR: i64 = 3_600_000_000;
pub const USECS_PER_MIN: i64 = 60_000_000;
pub const USECS_PER_SEC: i64 = 1_000_000;
