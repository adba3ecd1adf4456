//! Time zones: an IANA name, a fixed offset or a POSIX string, and the two questions asked of one: the offset at an
//! instant, and the instant of a local time.
//!
//! What a number means depends on who asks, as in PostgreSQL:
//!
//! | asked by | `+2` | `+02:00` | `PST` |
//! |---|---|---|---|
//! | `SET timezone` | hours east | hours west (POSIX) | unknown: abbreviations are no zones |
//! | `AT TIME ZONE`, `date_trunc` | hours west | hours west | an abbreviation |
//! | `make_timestamptz` | hours east | hours east | an abbreviation |
//!
//! `jiff` holds the rules. It knows the years -9999 to 9999; outside them an instant is moved by whole 400-year cycles
//! into them, after which the calendar repeats. In the hour that a clock skips the offset before the change holds; in the
//! hour that it repeats, the offset after: PostgreSQL's choice.
//!
//! An abbreviation whose meaning changed over the years (`MSK`) has the one it had then, as its zone's history tells.
//!
//! Left out on purpose: `SET timezone_abbreviations`; the default set holds.

use base::{Error, Result, SqlState};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::fmt;

use super::datetime::{USECS_PER_DAY, calendar};

/// Microseconds from the Unix epoch to 2000-01-01.
const EPOCH: i64 = 946_684_800_000_000;
/// Offsets are shorter than a week.
const MOST_SECONDS: i32 = 168 * 3600;
/// Days of 400 Gregorian years.
const CYCLE: i64 = 146_097 * USECS_PER_DAY;

/// A time zone with the name that SHOW gives back.
#[derive(Clone)]
pub struct Zone {
    name: std::sync::Arc<str>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// Seconds east of Greenwich.
    Fixed(i32),
    Rules(TimeZone),
    /// The offsets that the zone's name has meant in this zone.
    Abbreviation(TimeZone),
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Zone {
    /// UTC.
    pub fn utc() -> Zone {
        Zone {
            name: "UTC".into(),
            kind: Kind::Fixed(0),
        }
    }

    /// A fixed number of seconds east of Greenwich.
    pub fn fixed(seconds: i32) -> Zone {
        let mut name = String::new();
        let (sign, back) = if seconds < 0 { ('-', '+') } else { ('+', '-') };
        let hm = |c: char| {
            let s = seconds.abs();
            match (s / 60 % 60, s % 60) {
                (0, 0) => format!("{c}{:02}", s / 3600),
                (m, 0) => format!("{c}{:02}:{m:02}", s / 3600),
                (m, sec) => format!("{c}{:02}:{m:02}:{sec:02}", s / 3600),
            }
        };
        name.push_str(&format!("<{}>{}", hm(sign), hm(back)));
        Zone {
            name: name.into(),
            kind: Kind::Fixed(seconds),
        }
    }

    /// The zone of a `SET TIME ZONE` text: a plain number is hours east, anything else is [`Zone::named`]. 22023 when it is none.
    pub fn setting(s: &str) -> Result<Zone> {
        let t = s.trim();
        if let Some(hours) = plain_number(t) {
            let seconds = (hours * 3600.0) as i32;
            return match seconds.abs() < MOST_SECONDS {
                true => Ok(Zone::fixed(seconds)),
                false => Err(unknown(s).detail("UTC timezone offset is out of range.")),
            };
        }
        Zone::named(t).ok_or_else(|| unknown(s))
    }

    /// The zone of an `AT TIME ZONE` text: an abbreviation, or [`Zone::named`]. 22023 when it is none.
    pub fn parse(s: &str) -> Result<Zone> {
        Self::find(s.trim()).ok_or_else(|| unknown(s))
    }

    /// The zone of a text whose numbers count to the east, as `make_timestamptz` takes it. A number needs its sign.
    pub fn east(s: &str) -> Result<Zone> {
        let t = s.trim();
        if t.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid input syntax for type numeric time zone: \"{s}\""),
            )
            .hint("Numeric time zones must have \"-\" or \"+\" as first character."));
        }
        match numeric_offset(t) {
            Some(secs) if secs.abs() >= 16 * 3600 => Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("numeric time zone \"{s}\" out of range"),
            )),
            Some(secs) => Ok(Zone::fixed(secs)),
            None => Zone::parse(s),
        }
    }

    /// An abbreviation, or [`Zone::named`].
    pub(crate) fn find(t: &str) -> Option<Zone> {
        if t.eq_ignore_ascii_case("utc") || t.eq_ignore_ascii_case("z") {
            return Some(Zone::utc());
        }
        if let Some(secs) = abbreviation(t) {
            return Some(Zone {
                name: t.to_ascii_uppercase().into(),
                kind: Kind::Fixed(secs),
            });
        }
        changing(t).or_else(|| Zone::named(t))
    }

    /// Whether this is a zone with a number, such as `GMT-1`, as it may stand behind a time.
    pub(crate) fn is_numbered(t: &str) -> bool {
        let letters = t.bytes().take_while(u8::is_ascii_alphabetic).count();
        letters >= 3 && posix_offset(t).is_some()
    }

    /// A name of the IANA database, or a POSIX string, whose offsets count to the west: `PST+8`, `<+02>-02`, `+02:00`.
    fn named(t: &str) -> Option<Zone> {
        if t.eq_ignore_ascii_case("utc") {
            return Some(Zone::utc());
        }
        if let Ok(tz) = TimeZone::get(t) {
            let name = tz.iana_name().unwrap_or(t).into();
            return Some(Zone {
                name,
                kind: Kind::Rules(tz),
            });
        }
        if let Some(west) = posix_offset(t) {
            return Some(Zone {
                name: t.to_ascii_uppercase().into(),
                kind: Kind::Fixed(-west),
            });
        }
        // Without rules of its own a summer time has those of the United States.
        if t.len() >= 4
            && let Ok(tz) =
                TimeZone::posix(t).or_else(|_| TimeZone::posix(&format!("{t},M3.2.0,M11.1.0")))
        {
            return Some(Zone {
                name: t.into(),
                kind: Kind::Rules(tz),
            });
        }
        None
    }

    /// Whether the offset depends on the date.
    pub(crate) fn has_rules(&self) -> bool {
        matches!(self.kind, Kind::Rules(_))
    }

    /// The name, as SHOW prints it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Seconds east of Greenwich at an instant (microseconds since 2000-01-01 UTC).
    pub fn offset_at(&self, instant: i64) -> i32 {
        match &self.kind {
            Kind::Fixed(s) => *s,
            Kind::Rules(tz) => tz.to_offset(unix(instant)).seconds(),
            Kind::Abbreviation(tz) => offset_named(tz, &self.name, unix(instant)),
        }
    }

    /// The abbreviation in force at an instant, such as `CEST`.
    pub fn abbreviation_at(&self, instant: i64) -> String {
        match &self.kind {
            Kind::Fixed(0) if &*self.name == "UTC" => "UTC".into(),
            Kind::Fixed(s) => match abbreviation(&self.name) {
                Some(_) => self.name.to_string(),
                None => {
                    let mut out = String::new();
                    super::datetime::format::offset(*s, &mut out);
                    out
                }
            },
            Kind::Rules(tz) => tz.to_offset_info(unix(instant)).abbreviation().to_string(),
            Kind::Abbreviation(_) => self.name.to_string(),
        }
    }

    /// Seconds east of Greenwich of a local time (microseconds since 2000-01-01 00:00 there).
    pub fn offset_of_local(&self, local: i64) -> i32 {
        match &self.kind {
            Kind::Fixed(s) => *s,
            Kind::Rules(tz) => offset_in(tz, local),
            Kind::Abbreviation(tz) => {
                let east = i64::from(offset_in(tz, local)) * 1_000_000;
                offset_named(tz, &self.name, unix(local.saturating_sub(east)))
            }
        }
    }

    /// Local time at an instant; both in microseconds since 2000-01-01.
    pub fn local(&self, instant: i64) -> i64 {
        instant.saturating_add(i64::from(self.offset_at(instant)) * 1_000_000)
    }

    /// The instant of a local time.
    pub fn instant(&self, local: i64) -> i64 {
        local.saturating_sub(i64::from(self.offset_of_local(local)) * 1_000_000)
    }
}

fn offset_in(tz: &TimeZone, local: i64) -> i32 {
    match tz.to_ambiguous_timestamp(civil(local)).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.seconds(),
        AmbiguousOffset::Gap { before, .. } => before.seconds(),
        AmbiguousOffset::Fold { after, .. } => after.seconds(),
    }
}

fn unix(instant: i64) -> Timestamp {
    let mut us = i128::from(instant) + i128::from(EPOCH);
    let cycle = i128::from(CYCLE);
    // Years 2000 to 2399 stand for all later ones, so that rules of the far future apply.
    let (low, high) = (-300_000_000_000_000_000, 253_000_000_000_000_000);
    if us > high {
        us -= (us - high).div_euclid(cycle) * cycle + cycle;
    }
    let us = us.max(low) as i64;
    Timestamp::from_microsecond(us).expect("within jiff's range")
}

fn civil(local: i64) -> DateTime {
    let mut local = local;
    if local > 252_000_000_000_000_000 {
        local = local.rem_euclid(CYCLE) + CYCLE;
    }
    let local = local.max(-290_000_000_000_000_000);
    let (y, m, d) = calendar::from_days(local.div_euclid(USECS_PER_DAY));
    let us = local.rem_euclid(USECS_PER_DAY);
    let s = us / 1_000_000;
    DateTime::new(
        y as i16,
        m as i8,
        d as i8,
        (s / 3600) as i8,
        (s / 60 % 60) as i8,
        (s % 60) as i8,
        (us % 1_000_000 * 1000) as i32,
    )
    .expect("a date of the calendar")
}

/// 22023.
fn unknown(s: &str) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("time zone \"{s}\" not recognized"),
    )
}

/// A decimal number and nothing else.
fn plain_number(t: &str) -> Option<f64> {
    let number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
    t.chars().all(number).then(|| t.parse().ok())?
}

/// The seconds west that a POSIX string without daylight saving time says: a name of letters or in angle brackets, which may
/// be missing, and `[+-]hours[:minutes[:seconds]]`.
fn posix_offset(t: &str) -> Option<i32> {
    let rest = match t.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?.1,
        None => t.trim_start_matches(|c: char| c.is_ascii_alphabetic()),
    };
    let (sign, digits) = match rest.as_bytes().first()? {
        b'-' => (-1, &rest[1..]),
        b'+' => (1, &rest[1..]),
        _ => (1, rest),
    };
    let mut seconds = 0;
    let mut parts = digits.split(':');
    for (unit, most) in [(3600, 167), (60, 59), (1, 59)] {
        let Some(p) = parts.next() else { break };
        let digits = !p.is_empty() && p.len() <= 4 && p.bytes().all(|b| b.is_ascii_digit());
        let n: i32 = digits.then(|| p.parse().ok())??;
        if n > most {
            return None;
        }
        seconds += n * unit;
    }
    parts.next().is_none().then_some(sign * seconds)
}

/// `+05`, `-5:30`, `+0530`, `5`, `-3.5`: seconds east.
fn numeric_offset(t: &str) -> Option<i32> {
    let (sign, digits) = match t.as_bytes().first()? {
        b'-' => (-1, &t[1..]),
        b'+' => (1, &t[1..]),
        _ => (1, t),
    };
    if !digits.bytes().next()?.is_ascii_digit() {
        return None;
    }
    let secs = if digits.contains(':') {
        let mut it = digits.split(':').map(|p| p.parse::<i32>().ok());
        let h = it.next()??;
        let m = it.next()??;
        let s = it.next().unwrap_or(Some(0))?;
        h * 3600 + m * 60 + s
    } else if let Ok(n) = digits.parse::<i32>() {
        match digits.len() {
            1 | 2 => n * 3600,
            3 | 4 => n / 100 * 3600 + n % 100 * 60,
            _ => return None,
        }
    } else {
        (digits.parse::<f64>().ok()? * 3600.0) as i32
    };
    (secs < MOST_SECONDS).then_some(sign * secs)
}

/// The fixed abbreviations of PostgreSQL's default set, by quarters of an hour east.
#[rustfmt::skip]
const FIXED: &[(i8, &str)] = &[
    (-40, "HST TAHT"),
    (-38, "MART"),
    (-36, "AKST GAMT"),
    (-32, "AKDT PST"),
    (-28, "MST PDT"),
    (-24, "CST GALT MDT"),
    (-20, "ACT CDT COT EST PET"),
    (-16, "AMT AST BOT EDT"),
    (-14, "NFT NST"),
    (-12, "ADT BRA BRT CLST GFT PMST PYST UYT WGT"),
    (-10, "NDT"),
    (-8, "BRST FNT PMDT UYST WGST"),
    (-4, "AZOT EGT FNST"),
    (0, "AZOST EGST GMT UT WET"),
    (4, "BST CET MET MEZ WAT WETDST"),
    (8, "BDST CEST CETDST EET IST MEST MESZ METDST SAST"),
    (12, "EAT EEST EETDST FET IDT"),
    (14, "IRT"),
    (16, "MSD MUT RET SCT"),
    (18, "AFT"),
    (20, "MUST MVT PKT TFT TJT UZT"),
    (23, "NPT"),
    (24, "ALMT BDT BTT KGST PKST UZST XJT YEKST"),
    (26, "MMT"),
    (28, "ALMST CXT ICT WAST"),
    (32, "AWST BNT BORT CCT HKT MYT PHT WADT"),
    (35, "ACWST"),
    (36, "AWSST JAYT JST KST PWT ULAST WDT"),
    (38, "ACST CAST"),
    (40, "AEST CHUT DDUT KDT LIGT MPT PGT TRUT YAPT"),
    (42, "ACDT ACSST CADT LHST SADT"),
    (44, "AEDT AESST PONT VUT"),
    (48, "FJT GILT MHT NZST NZT TVT WAKT WFT"),
    (51, "CHAST"),
    (52, "FJST NZDT TOT"),
    (55, "CHADT"),
];

/// Abbreviations that meant different offsets in different years, by the zone that tells which.
#[rustfmt::skip]
const BY_ZONE: &[(&str, &str)] = &[
    ("America/Argentina/Buenos_Aires", "ARST ART"),
    ("America/Asuncion", "PYT"),
    ("America/Caracas", "VET"),
    ("America/Guyana", "GYT"),
    ("America/Santiago", "CLT"),
    ("Antarctica/Davis", "DAVT"),
    ("Antarctica/Mawson", "MAWT"),
    ("Asia/Anadyr", "ANAST ANAT"),
    ("Asia/Ashgabat", "TMT"),
    ("Asia/Baku", "AZST AZT"),
    ("Asia/Bishkek", "KGT"),
    ("Asia/Colombo", "LKT"),
    ("Asia/Irkutsk", "IRKST IRKT"),
    ("Asia/Kamchatka", "PETST PETT"),
    ("Asia/Krasnoyarsk", "KRAST KRAT"),
    ("Asia/Magadan", "MAGST MAGT"),
    ("Asia/Novosibirsk", "NOVST NOVT"),
    ("Asia/Omsk", "OMSST OMST"),
    ("Asia/Singapore", "SGT"),
    ("Asia/Tbilisi", "GEST GET"),
    ("Asia/Ulaanbaatar", "ULAT"),
    ("Asia/Vladivostok", "VLAST VLAT"),
    ("Asia/Yakutsk", "YAKST YAKT"),
    ("Asia/Yekaterinburg", "YEKT"),
    ("Asia/Yerevan", "AMST"),
    ("Atlantic/Stanley", "FKST FKT"),
    ("Australia/Lord_Howe", "LHDT"),
    ("Europe/Moscow", "MSK"),
    ("Europe/Volgograd", "VOLT"),
    ("Indian/Chagos", "IOT"),
    ("Pacific/Easter", "EASST EAST"),
    ("Pacific/Fakaofo", "TKT"),
    ("Pacific/Kiritimati", "LINT"),
    ("Pacific/Kosrae", "KOST"),
    ("Pacific/Niue", "NUT"),
    ("Pacific/Rarotonga", "CKT"),
];

/// Seconds east of a fixed abbreviation.
fn abbreviation(t: &str) -> Option<i32> {
    let named = |names: &str| names.split(' ').any(|n| n.eq_ignore_ascii_case(t));
    let hit = FIXED.iter().find(|f| named(f.1))?;
    Some(i32::from(hit.0) * 900)
}

/// The zone of an abbreviation whose offset depends on the year.
fn changing(t: &str) -> Option<Zone> {
    let named = |names: &str| names.split(' ').any(|n| n.eq_ignore_ascii_case(t));
    let hit = BY_ZONE.iter().find(|z| named(z.1))?;
    Some(Zone {
        name: t.to_ascii_uppercase().into(),
        kind: Kind::Abbreviation(TimeZone::get(hit.0).ok()?),
    })
}

/// The offset that an abbreviation of a zone had when it was last in force there: at this time, or before, or else after.
/// Where the zone's history does not know the name, what holds in the zone.
fn offset_named(tz: &TimeZone, name: &str, at: Timestamp) -> i32 {
    let now = tz.to_offset_info(at);
    if now.abbreviation().eq_ignore_ascii_case(name) {
        return now.offset().seconds();
    }
    let hit = |t: &jiff::tz::TimeZoneTransition<'_>| t.abbreviation().eq_ignore_ascii_case(name);
    let past = tz.preceding(at).find(hit);
    // Rules without an end go on changing for ever.
    let found = past.or_else(|| tz.following(at).take(200).find(hit));
    found.map_or(now.offset(), |t| t.offset()).seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_keep_the_offset_before_and_folds_take_the_one_after() {
        let z = Zone::parse("America/New_York").unwrap();
        let local = |y, m, d, h: i64, min: i64| {
            calendar::to_days(y, m, d) * USECS_PER_DAY + (h * 60 + min) * 60_000_000
        };
        assert_eq!(z.offset_of_local(local(2020, 3, 8, 2, 30)), -5 * 3600);
        assert_eq!(z.offset_of_local(local(2020, 11, 1, 1, 30)), -5 * 3600);
        assert_eq!(z.offset_of_local(local(2020, 7, 1, 0, 0)), -4 * 3600);
        assert_eq!(z.offset_of_local(local(20200, 7, 1, 0, 0)), -4 * 3600);
    }

    #[test]
    fn offsets_and_abbreviations() {
        assert_eq!(Zone::east("+05:30").unwrap().offset_at(0), 19_800);
        assert_eq!(Zone::setting("-8").unwrap().offset_at(0), -28_800);
        assert_eq!(Zone::setting("+05:30").unwrap().offset_at(0), -19_800);
        assert_eq!(Zone::parse("-8").unwrap().offset_at(0), 28_800);
        assert_eq!(Zone::parse("GMT-1").unwrap().offset_at(0), 3600);
        assert_eq!(Zone::setting("<-02:30>+02:30").unwrap().offset_at(0), -9000);
        assert!(Zone::setting("+0530").is_err() && Zone::setting("EDT").is_err());
        assert_eq!(Zone::parse("pst").unwrap().offset_at(0), -28_800);
        assert_eq!(
            Zone::parse("europe/berlin").unwrap().name(),
            "Europe/Berlin"
        );
        assert!(Zone::parse("Mars/Base").is_err());
        assert_eq!(Zone::fixed(19_800).name(), "<+05:30>-05:30");
    }
}
