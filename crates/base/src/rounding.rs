//! Seconds with a number of digits.

/// Rounds microseconds to `precision` digits of seconds, half away from zero; -1 keeps all.
pub fn round_to(micros: i64, precision: i32) -> i64 {
    if !(0..6).contains(&precision) || micros == i64::MAX || micros == i64::MIN {
        return micros;
    }
    let unit = 10i64.pow(6 - precision as u32);
    let half = unit / 2;
    if micros >= 0 {
        (micros + half) / unit * unit
    } else {
        -((-micros + half) / unit * unit)
    }
}
