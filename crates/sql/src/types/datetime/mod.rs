//! Dates, times and intervals: the calendar, reading, writing.
//!
//! - [`calendar`] counts days; [`Fields`] is a broken-down moment;
//! - [`parse`] reads PostgreSQL's many spellings of dates and times, [`interval`] those of intervals;
//! - [`format`] writes them in the session's style.
//!
//! Arithmetic stands in [`crate::types::ops::datetime`].

pub mod calendar;
pub mod format;
pub mod interval;
pub mod parse;

use base::{Error, SqlState};

/// Microseconds of a day.
pub const USECS_PER_DAY: i64 = 86_400_000_000;
/// Microseconds of an hour.
pub const USECS_PER_HOUR: i64 = 3_600_000_000;
/// Microseconds of a minute.
pub const USECS_PER_MIN: i64 = 60_000_000;
/// Microseconds of a second.
pub const USECS_PER_SEC: i64 = 1_000_000;

/// First timestamp: 4713-11-24 BC.
pub const MIN_TIMESTAMP: i64 = -211_813_488_000_000_000;
/// First moment after the last timestamp: 294277-01-01.
pub const END_TIMESTAMP: i64 = 9_223_371_331_200_000_000;
/// First date.
pub const MIN_DATE: i64 = -2_451_545;
/// First day after the last date: 5874898-01-01.
pub const END_DATE: i64 = 2_145_031_949;

/// A local date and time, broken down. Years are astronomical (0 is 1 BC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub year: i32,
    pub month: i32,
    pub day: i32,
    /// Microseconds since midnight.
    pub micros: i64,
}

impl Fields {
    /// Breaks down microseconds since 2000-01-01.
    pub fn of(local: i64) -> Fields {
        let (year, month, day) = calendar::from_days(local.div_euclid(USECS_PER_DAY));
        Fields {
            year,
            month,
            day,
            micros: local.rem_euclid(USECS_PER_DAY),
        }
    }

    /// Microseconds since 2000-01-01, `None` outside the range of timestamps.
    pub fn to_timestamp(self) -> Option<i64> {
        let days = calendar::to_days(self.year, self.month, self.day);
        let t = i128::from(days) * i128::from(USECS_PER_DAY) + i128::from(self.micros);
        i64::try_from(t).ok().filter(|t| in_range(*t))
    }

    pub fn hour(&self) -> i64 {
        self.micros / USECS_PER_HOUR
    }

    pub fn minute(&self) -> i64 {
        self.micros / USECS_PER_MIN % 60
    }

    pub fn second(&self) -> i64 {
        self.micros / USECS_PER_SEC % 60
    }

    /// Microseconds of the second.
    pub fn fraction(&self) -> i64 {
        self.micros % USECS_PER_SEC
    }
}

/// Whether a finite timestamp lies in PostgreSQL's range.
pub fn in_range(t: i64) -> bool {
    (MIN_TIMESTAMP..END_TIMESTAMP).contains(&t)
}

/// -infinity or infinity.
pub fn is_infinite(t: i64) -> bool {
    t == i64::MIN || t == i64::MAX
}

/// 22008.
pub fn overflow(message: impl Into<String>) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
}
