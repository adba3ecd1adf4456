//! What the names in an archive tell that are more than numbers: parts of segments in `wal`, and notes, which have no content.
//!
//! ```text
//! wal/NUMBER-FIRST.part            the segment behind the finished ones, as far as it was written when a backup was made
//! wal/from-NUMBER                  segments below this number were removed, because nothing that is kept needs them
//! times/MICROSECONDS-POSITION      everything up to this position had been committed at this time (UTC)
//! times/since-MICROSECONDS         the first of these moments, where the earliest were removed
//! times/begins-POSITION            the last position that the history has of older terms
//! times/whole-NUMBER-MICROSECONDS  at this time the checkpoint NUMBER and the log above its start were read in the archive, and were whole
//! ```
//! Other names are passed over, so an older build reads a folder in which a newer one has notes.
//!
//! Left out on purpose: reading and writing the folders (`archive`).

use crate::segment::SegmentName;
use base::Position;

/// A moment, and a position up to which everything had been committed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Microseconds since 1970-01-01 UTC.
    pub time: u64,
    pub position: Position,
}

impl Mark {
    pub(crate) fn name(&self) -> String {
        format!("{:020}-{:016x}", self.time, self.position.as_u64())
    }

    fn parse(name: &str) -> Option<Mark> {
        let (time, position) = name.split_once('-')?;
        Some(Mark {
            time: time.parse().ok()?,
            position: Position::from_u64(u64::from_str_radix(position, 16).ok()?),
        })
    }
}

pub(crate) fn since(time: u64) -> String {
    format!("since-{time:020}")
}

pub(crate) fn begins(position: Position) -> String {
    format!("begins-{:016x}", position.as_u64())
}

pub(crate) fn whole(checkpoint: u64, time: u64) -> String {
    format!("whole-{checkpoint:020}-{time:020}")
}

pub(crate) fn part_name(name: SegmentName) -> String {
    name.file_name().replace(".wal", ".part")
}

/// The segment whose beginning an object of this name holds; `None` for other names.
pub fn parse_part(name: &str) -> Option<SegmentName> {
    SegmentName::parse(&format!("{}.wal", name.strip_suffix(".part")?))
}

const FROM: &str = "from-";

/// The note that segments below this number were removed.
pub(crate) fn removed_note(number: u64) -> String {
    format!("{FROM}{number:020}")
}

/// Segments below this number were removed; 0: none were.
pub(crate) fn removed_below(names: &[String]) -> u64 {
    let numbers = names
        .iter()
        .filter_map(|n| n.strip_prefix(FROM)?.parse().ok());
    numbers.max().unwrap_or(0)
}

/// What the folder `times` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Ascending.
    pub marks: Vec<Mark>,
    pub since: Option<u64>,
    pub begins: Option<Position>,
    /// Numbers of checkpoints with the times at which they were whole, ascending.
    pub whole: Vec<(u64, u64)>,
}

impl Times {
    /// Of the names in the folder.
    pub fn of(names: &[String]) -> Times {
        let after = |prefix: &'static str| names.iter().filter_map(move |n| n.strip_prefix(prefix));
        let whole = |rest: &str| {
            let (checkpoint, time) = rest.split_once('-')?;
            Some((checkpoint.parse().ok()?, time.parse().ok()?))
        };
        let position = |hex: &str| u64::from_str_radix(hex, 16).ok();
        let mut times = Times {
            marks: names.iter().filter_map(|n| Mark::parse(n)).collect(),
            since: after("since-").filter_map(|t| t.parse().ok()).min(),
            begins: after("begins-")
                .filter_map(position)
                .min()
                .map(Position::from_u64),
            whole: after("whole-").filter_map(whole).collect(),
        };
        times.marks.sort_unstable();
        times.whole.sort_unstable();
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let mark = |time, order| Mark {
            time,
            position: Position::new(1, order),
        };
        let (first, second) = (mark(5, 7), mark(40, 9));
        let names = [
            second.name(),
            first.name(),
            since(3),
            begins(Position::new(1, 2)),
            whole(2, 60),
            whole(1, 50),
            "another-build-wrote-this".into(),
            "README".into(),
        ];
        let times = Times {
            marks: vec![first, second],
            since: Some(3),
            begins: Some(Position::new(1, 2)),
            whole: vec![(1, 50), (2, 60)],
        };
        assert_eq!(Times::of(&names), times);
        assert_eq!(Times::of(&[]), Times::default());
        let names = [removed_note(4), removed_note(12), "from-x".into()];
        assert_eq!((removed_below(&names), removed_below(&[])), (12, 0));
    }
}
