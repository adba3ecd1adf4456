//! Writing dates, times and intervals.

use std::fmt::Write;

/// `+02`, `-03:30`: an offset in seconds east.
pub fn offset(seconds: i32, out: &mut String) {
    let s = seconds.abs();
    let sign = if seconds < 0 { '-' } else { '+' };
    write!(out, "{sign}{:02}", s / 3600).expect("to a string");
    if s % 3600 != 0 {
        write!(out, ":{:02}", s / 60 % 60).expect("to a string");
    }
    if s % 60 != 0 {
        write!(out, ":{:02}", s % 60).expect("to a string");
    }
}
