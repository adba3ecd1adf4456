//! May a write that was set aside be put back? Pure: versions in, a verdict out.
//!
//! A line holds a row as it stood where the histories part, and after each of its lost writes. The cluster's row is held against it:
//!
//! ```text
//! stands as after this write, or after a later one of the line      done: it is there already
//! stands as just before this write                                  apply
//! stands as earlier in the line                                     conflict: a write before this one is not there
//! anything else                                                     conflict: the cluster has changed the row since
//! ```
//! The newest version that matches counts. So a second run finds everything done, also where a row was changed and changed back; and
//! a client that has repeated its lost transaction at the new primary leaves nothing to do.
//!
//! Rows are compared by their values. A row that the cluster has changed and changed back counts as unchanged: nothing of it would be lost.

/// How a row stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stood<R> {
    Row(R),
    /// It was not there.
    Absent,
    /// Nobody knows any more.
    Unknown,
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Apply,
    Done,
    Conflict(Why),
}

/// Why a write may not be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The row stands as the line never had it.
    Changed,
    /// An earlier write of the line is not there.
    Earlier,
    /// It is not known what the write followed.
    Unknown,
}

impl Why {
    /// For a person.
    pub fn words(self) -> &'static str {
        match self {
            Why::Changed => "the row has changed since the histories parted",
            Why::Earlier => "an earlier write of the row was not put back",
            Why::Unknown => "it is not known how the row stood before",
        }
    }
}

/// Judges the write that made version `step` of a line. `present`: the cluster's row, if it is there; `same`: whether it is the one of a
/// version.
pub fn judge<R, P>(
    versions: &[Stood<R>],
    step: usize,
    present: Option<&P>,
    same: impl Fn(&R, &P) -> bool,
) -> Verdict {
    let stands = |s: &Stood<R>| match (s, present) {
        (Stood::Row(r), Some(p)) => same(r, p),
        (Stood::Absent, None) => true,
        _ => false,
    };
    match versions.iter().rposition(stands) {
        Some(at) if at >= step => Verdict::Done,
        Some(at) if at + 1 == step => Verdict::Apply,
        Some(_) => Verdict::Conflict(Why::Earlier),
        None if versions[..step].iter().any(|v| matches!(v, Stood::Unknown)) => {
            Verdict::Conflict(Why::Unknown)
        }
        None => Verdict::Conflict(Why::Changed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(versions: &[Stood<i32>], step: usize, present: Option<i32>) -> Verdict {
        judge(versions, step, present.as_ref(), |r, p| r == p)
    }

    #[test]
    fn a_write_is_put_back_only_onto_what_it_followed() {
        use Stood::{Absent, Row, Unknown};
        use Verdict::{Apply, Conflict, Done};
        let line = [Row(1), Row(2), Row(3)];
        assert_eq!(
            [1, 2].map(|s| of(&line, s, Some(1))),
            [Apply, Conflict(Why::Earlier)]
        );
        assert_eq!([1, 2].map(|s| of(&line, s, Some(2))), [Done, Apply]);
        assert_eq!([1, 2].map(|s| of(&line, s, Some(3))), [Done, Done]);
        let changed = Conflict(Why::Changed);
        assert_eq!([1, 2].map(|s| of(&line, s, Some(9))), [changed; 2]);
        assert_eq!([1, 2].map(|s| of(&line, s, None)), [changed; 2]);
        // An insert, and the same number given to another row since.
        assert_eq!(of(&[Absent, Row(5)], 1, None), Apply);
        assert_eq!(of(&[Absent, Row(5)], 1, Some(6)), changed);
        assert_eq!(of(&[Absent, Row(5)], 1, Some(5)), Done);
        // A delete.
        assert_eq!(of(&[Row(5), Absent], 1, Some(5)), Apply);
        assert_eq!(of(&[Row(5), Absent], 1, None), Done);
        assert_eq!(of(&[Row(5), Absent], 1, Some(6)), changed);
        // What it followed is not known; what it made still is.
        assert_eq!(of(&[Unknown, Row(5)], 1, Some(6)), Conflict(Why::Unknown));
        assert_eq!(of(&[Unknown, Row(5)], 1, None), Conflict(Why::Unknown));
        assert_eq!(of(&[Unknown, Row(5)], 1, Some(5)), Done);
        assert_eq!(of(&[Unknown, Row(5), Row(6)], 2, Some(5)), Apply);
    }

    #[test]
    fn what_was_changed_and_changed_back_is_done() {
        use Stood::{Absent, Row};
        let there_and_back = [Row(1), Row(2), Row(1)];
        assert_eq!(
            [1, 2].map(|s| of(&there_and_back, s, Some(1))),
            [Verdict::Done; 2]
        );
        let come_and_gone = [Absent, Row(2), Absent];
        assert_eq!(
            [1, 2].map(|s| of(&come_and_gone, s, None)),
            [Verdict::Done; 2]
        );
        assert_eq!(of(&come_and_gone, 2, Some(2)), Verdict::Apply);
    }

    /// Whatever the cluster's row is: putting back what may be, in order, and doing it again, changes nothing the second time.
    #[test]
    fn a_second_run_changes_nothing() {
        let lines: Vec<Vec<Stood<i32>>> = (0..81u32)
            .map(|n| {
                let stood = |d: u32| match (n / 3u32.pow(d)) % 3 {
                    0 => Stood::Absent,
                    v => Stood::Row(v as i32),
                };
                (0..4).map(stood).collect()
            })
            .collect();
        for line in lines {
            for first in [None, Some(1), Some(2), Some(3)] {
                let mut present = first;
                let mut applied = [0, 0];
                for count in &mut applied {
                    for step in 1..line.len() {
                        if of(&line, step, present) == Verdict::Apply {
                            *count += 1;
                            present = match &line[step] {
                                Stood::Row(r) => Some(*r),
                                _ => None,
                            };
                        }
                    }
                }
                assert_eq!(applied[1], 0, "{line:?} from {first:?}");
            }
        }
    }
}
