//! The proleptic Gregorian calendar as day numbers from 2000-01-01. Years are astronomical: 0 is 1 BC.

/// Julian day number of 2000-01-01.
pub const JULIAN_2000: i64 = 2_451_545;

/// The day number of a date; months and days out of range carry over.
pub fn to_days(year: i32, month: i32, day: i32) -> i64 {
    let m = i64::from(month) - 1;
    let y = i64::from(year) + m.div_euclid(12);
    let m = m.rem_euclid(12) + 1;
    // Years start in March, so that the leap day is the last of its year.
    let (y, m) = if m <= 2 { (y - 1, m + 9) } else { (y, m - 3) };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * m + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 730_425
}

/// Year, month and day of a day number.
pub fn from_days(days: i64) -> (i32, i32, i32) {
    let z = days + 730_425;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let d = doy - (153 * mp + 2) / 5 + 1;
    let m = if mp < 10 { mp + 3 } else { mp - 9 };
    let y = yoe + era * 400 + i64::from(m <= 2);
    (y as i32, m as i32, d as i32)
}

/// Whether a year has a 29th of February.
pub fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days of a month (1 to 12).
pub fn days_in_month(year: i32, month: i32) -> i32 {
    match month {
        2 => 28 + i32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Day of the week of a day number, Sunday 0.
pub fn day_of_week(days: i64) -> i64 {
    (days + 6).rem_euclid(7)
}

/// ISO 8601 year and week of a day number.
pub fn iso_week(days: i64) -> (i32, i32) {
    // The week belongs to the year of its Thursday.
    let thursday = days - (day_of_week(days) + 6) % 7 + 3;
    let (year, _, _) = from_days(thursday);
    let week = (thursday - to_days(year, 1, 1)) / 7 + 1;
    (year, week as i32)
}

/// Day number of the Monday of an ISO week.
pub fn iso_week_start(year: i32, week: i32) -> i64 {
    let jan4 = to_days(year, 1, 4);
    jan4 - (day_of_week(jan4) + 6) % 7 + i64::from(week - 1) * 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_numbers_are_those_of_postgresql() {
        assert_eq!(to_days(2000, 1, 1), 0);
        assert_eq!(to_days(1970, 1, 1), -10_957);
        assert_eq!(to_days(-4713, 11, 24), -JULIAN_2000);
        assert_eq!(to_days(2000, 13, 1), 366);
        for d in [-2_451_545, -730_426, -1, 0, 59, 60, 366, 107_000_000] {
            let (y, m, dd) = from_days(d);
            assert_eq!(to_days(y, m, dd), d);
        }
        assert_eq!(day_of_week(0), 6);
        assert_eq!(iso_week(to_days(2021, 1, 3)), (2020, 53));
        assert_eq!(iso_week_start(2021, 1), to_days(2021, 1, 4));
    }
}
