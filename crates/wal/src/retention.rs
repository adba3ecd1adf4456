//! When a base is due, and what an archive need not keep: decided from a listing alone.
//!
//! A **base** is a checkpoint in the archive, with the log above its start. It counts once it was read whole there (`whole-` in the folder `times`).
//!
//! ```text
//!           oldest                now − keep            now
//! ──○──────────●──────────○───────────┼────────○─────────┼──▶     ● ○ bases
//!   removed    │ everything from here on is kept
//! ```
//! Everything in front of the oldest base that is kept goes: older bases, the moments before its end, the log that only they need, and older terms.
//!
//! | what is wanted | the oldest base that is kept |
//! |---|---|
//! | a number of bases | the oldest of the newest that many |
//! | a time | the newest base from which the state at `now − keep` is restored. Each later moment is restored from it or from a newer one |
//!
//! Where there is no such base, nothing is removed. So the last whole base stays, and no base goes before a newer one was read whole.
//! The decision is one of the listing. A new primary decides what the old one would have.
//!
//! Left out on purpose: the work itself ([`Archive::prune`](crate::Archive::prune)), and bases of different ages, such as one a week.

use crate::checkpoint::parse_name;
use crate::names::{self, Times, parse_part, removed_below, removed_note};
use crate::segment::SegmentName;
use base::Position;
use base::units::duration;
use env::fault;
use std::str::FromStr;

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Everything.
    #[default]
    All,
    /// So many bases, 1 or more, and what follows the oldest of them.
    Bases(usize),
    /// What restores each moment of the last so many microseconds.
    Time(u64),
}

impl FromStr for Keep {
    type Err = &'static str;

    /// A number of bases, such as `3`, or a time, such as `7d`.
    fn from_str(text: &str) -> Result<Keep, &'static str> {
        let bad = "a number of backups, such as 3, or a time, such as 7d";
        match text.trim().parse::<u32>() {
            Ok(0) => Err(bad),
            Ok(n) => Ok(Keep::Bases(n as usize)),
            Err(_) => {
                let time = duration(text).filter(|t| !t.is_zero()).ok_or(bad)?;
                Ok(Keep::Time(u64::try_from(time.as_micros()).or(Err(bad))?))
            }
        }
    }
}

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The checkpoint's.
    pub number: u64,
    pub start: Position,
    pub end: Position,
    /// When it was last read whole, in microseconds since 1970-01-01 UTC; none: never.
    pub whole: Option<u64>,
}

/// A term's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Term {
    pub term: u64,
    /// Names of the objects in its folders.
    pub wal: Vec<String>,
    pub checkpoint: Vec<String>,
    pub times: Vec<String>,
    /// The checkpoints that can be opened, ascending.
    pub bases: Vec<Base>,
}

impl Term {
    /// The number of the newest checkpoint, whole or not; 0: there is none.
    pub fn newest_checkpoint(&self) -> u64 {
        let numbers = self.checkpoint.iter().filter_map(|n| parse_name(n));
        numbers.max().unwrap_or(0)
    }
}

/// What nothing needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Objects without content that are written before: the term, the folder and the name.
    pub notes: Vec<(u64, &'static str, String)>,
    /// What goes, in this order: the term, the folder and the name.
    pub objects: Vec<(u64, &'static str, String)>,
}

/// Whether the primary of a term has to make a base. The first base of a term is due at once, because a restore does not go on from one term's log to
/// another's. `every`: microseconds. A base of the future, by another clock, counts only if it is not far ahead.
pub fn is_due(listing: &[Term], term: u64, now: u64, every: u64) -> bool {
    let own = listing.iter().filter(|t| t.term == term);
    let newest = own.flat_map(|t| &t.bases).filter_map(|b| b.whole).max();
    newest.is_none_or(|t| now.abs_diff(t) >= every)
}

/// The oldest moment that can be restored, and its term, as far as bases tell that were read whole.
pub fn reaches_back_to(listing: &[Term]) -> Option<(u64, names::Mark)> {
    listing.iter().find_map(|t| {
        let base = t.bases.iter().find(|b| b.whole.is_some())?;
        let marks = Times::of(&t.times).marks;
        let first = marks.into_iter().find(|m| m.position >= base.end)?;
        Some((t.term, first))
    })
}

/// The term and the position that a restore to this time takes (`restore`).
fn at(listing: &[Term], time: u64) -> Option<(u64, Position)> {
    let mut ends = Position::MAX;
    for t in listing.iter().rev() {
        let times = Times::of(&t.times);
        if let Some(mark) = times.marks.iter().rfind(|m| m.time <= time) {
            return Some((t.term, mark.position.min(ends)));
        }
        if times.since.is_some_and(|s| s <= time) {
            return None;
        }
        ends = ends.min(times.begins.unwrap_or(ends));
    }
    None
}

/// The term and the base in front of which nothing is kept.
fn oldest_kept(listing: &[Term], now: u64, keep: Keep) -> Option<(u64, Base)> {
    // A base of an older term that ends above the next one's beginning holds commits that a fail-over has lost: no restore takes it.
    let (mut usable, mut ends) = (Vec::new(), Position::MAX);
    for t in listing.iter().rev() {
        let bases = t.bases.iter().rev();
        let bases = bases.filter(|b| b.whole.is_some() && b.end <= ends);
        usable.extend(bases.map(|b| (t.term, *b)));
        ends = ends.min(Times::of(&t.times).begins.unwrap_or(ends));
    }
    let mut whole = usable.into_iter();
    match keep {
        Keep::All => None,
        Keep::Bases(n) => whole.nth(n.saturating_sub(1)),
        Keep::Time(keep) => {
            let first = now.saturating_sub(keep);
            if fault::planted("backup.prune_needed") {
                // The oldest base that was made in the time: what lies between its beginning and that base is lost.
                return whole.rfind(|(_, b)| b.whole.is_some_and(|t| t >= first));
            }
            let (term, position) = at(listing, first)?;
            whole.find(|(t, b)| *t == term && b.end <= position)
        }
    }
}

fn segment(name: &str) -> Option<SegmentName> {
    SegmentName::parse(name).or_else(|| parse_part(name))
}

/// What need not be kept of an archive with these terms, ascending. `now`: microseconds since 1970-01-01 UTC.
pub fn removal(listing: &[Term], now: u64, keep: Keep) -> Removal {
    let mut out = Removal::default();
    let Some((term, base)) = oldest_kept(listing, now, keep) else {
        return out;
    };
    for t in listing {
        if t.term < term {
            // Bases first: what is left of a removal that breaks off is log without a base, and no base without its log.
            for (folder, names) in [
                ("checkpoint", &t.checkpoint),
                ("wal", &t.wal),
                ("times", &t.times),
            ] {
                let all = names.iter().map(|n| (t.term, folder, n.clone()));
                out.objects.extend(all);
            }
        } else if t.term == term {
            in_front_of(t, &base, &mut out);
        }
        if t.term >= term {
            old_notes(t, &mut out);
        }
    }
    out
}

/// What lies in front of a base in its term.
fn in_front_of(t: &Term, base: &Base, out: &mut Removal) {
    let times = Times::of(&t.times);
    let mut go = |folder, name| out.objects.push((t.term, folder, name));
    for name in &t.checkpoint {
        if parse_name(name).is_some_and(|n| n < base.number) {
            go("checkpoint", name.clone());
        }
    }
    for (number, time) in times.whole.iter().filter(|w| w.0 < base.number) {
        go("times", names::whole(*number, *time));
    }
    let before: Vec<_> = times
        .marks
        .iter()
        .filter(|m| m.position < base.end)
        .collect();
    for mark in &before {
        go("times", mark.name());
    }
    if let (Some(first), None) = (before.first(), times.since) {
        out.notes.push((t.term, "times", names::since(first.time)));
    }
    let mut segments: Vec<_> = t
        .wal
        .iter()
        .filter_map(|n| Some((segment(n)?, n)))
        .collect();
    segments.sort_unstable();
    let needed = segments.iter().rfind(|s| s.0.first <= base.start.next());
    let Some(needed) = needed.map(|s| s.0.number) else {
        return;
    };
    let gone = segments.iter().filter(|s| s.0.number < needed);
    let gone: Vec<_> = gone.map(|s| (t.term, "wal", s.1.clone())).collect();
    if !gone.is_empty() && removed_below(&t.wal) < needed {
        out.notes.push((t.term, "wal", removed_note(needed)));
    }
    out.objects.extend(gone);
}

/// Notes that newer ones have replaced.
fn old_notes(t: &Term, out: &mut Removal) {
    let times = Times::of(&t.times);
    for pair in times.whole.windows(2).filter(|p| p[0].0 == p[1].0) {
        let name = names::whole(pair[0].0, pair[0].1);
        let object = (t.term, "times", name);
        if !out.objects.contains(&object) {
            out.objects.push(object);
        }
    }
    let below = removed_below(&t.wal);
    let old = |n: &&String| (1..below).contains(&removed_below(std::slice::from_ref(*n)));
    for name in t.wal.iter().filter(old) {
        out.objects.push((t.term, "wal", name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::file_name;
    use crate::names::Mark;

    const HOUR: u64 = 3_600_000_000;

    fn at(n: u32) -> Position {
        Position::new(1, n)
    }

    /// A term with a base every hour, read whole half an hour later; a segment, a moment and ten commits each half hour.
    fn hourly(term: u64, from: u64, hours: u64) -> Term {
        let mut t = Term {
            term,
            ..Term::default()
        };
        for half in 2 * from..2 * (from + hours) {
            let position = at(10 * half as u32 + 10);
            let name = SegmentName {
                number: half + 1,
                first: at(10 * half as u32 + 1),
            };
            t.wal.push(name.file_name());
            let time = half * HOUR / 2;
            t.times.push(Mark { time, position }.name());
            if half % 2 == 0 {
                let number = half / 2 + 1;
                let whole = time + HOUR / 2;
                t.checkpoint.push(file_name(number));
                t.times.push(names::whole(number, whole));
                t.bases.push(Base {
                    number,
                    start: at(10 * half as u32 + 4),
                    end: at(10 * half as u32 + 10),
                    whole: Some(whole),
                });
            }
        }
        t
    }

    fn gone(r: &Removal, folder: &str) -> usize {
        r.objects.iter().filter(|o| o.1 == folder).count()
    }

    /// The last base of a primary that was lost had commits which the next one never got.
    #[test]
    fn a_base_above_the_next_terms_beginning_does_not_count() {
        let (old, mut new) = (hourly(1, 0, 3), hourly(2, 3, 0));
        new.times.push(names::begins(at(45)));
        let removed = removal(&[old, new], 6 * HOUR, Keep::Bases(1));
        assert_eq!(gone(&removed, "checkpoint"), 1);
    }

    #[test]
    fn what_is_kept_is_read_of_a_number_or_a_time() {
        assert_eq!("3".parse(), Ok(Keep::Bases(3)));
        assert_eq!("7d".parse(), Ok(Keep::Time(7 * 24 * HOUR)));
        assert_eq!(" 90min ".parse(), Ok(Keep::Time(3 * HOUR / 2)));
        for bad in ["", "0", "0d", "seven", "-3", "3 bases"] {
            assert!(bad.parse::<Keep>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_base_is_due_when_the_newest_of_its_term_is_old_or_there_is_none() {
        let listing = [hourly(1, 0, 3)];
        // The newest was read whole at half past two.
        let whole = 2 * HOUR + HOUR / 2;
        for (term, now, due) in [
            (1, whole, false),
            (1, whole + HOUR - 1, false),
            (1, whole + HOUR, true),
            // Another clock was ahead, a little and much.
            (1, whole - HOUR / 2, false),
            (1, whole - HOUR, true),
            (2, whole, true),
        ] {
            assert_eq!(is_due(&listing, term, now, HOUR), due, "{term} {now}");
        }
        let mut unread = hourly(1, 0, 3);
        unread.bases.iter_mut().for_each(|b| b.whole = None);
        assert!(is_due(&[unread], 1, whole, HOUR));
        assert!(is_due(&[], 1, whole, HOUR));
    }

    #[test]
    fn a_number_counts_bases_that_were_read_whole() {
        let mut t = hourly(1, 0, 6);
        assert_eq!(
            removal(&[t.clone()], 6 * HOUR, Keep::All),
            Removal::default()
        );
        let r = removal(&[t.clone()], 6 * HOUR, Keep::Bases(2));
        // Bases 5 and 6 stay. The log from the segment with the start of base 5 stays, too.
        assert_eq!((gone(&r, "checkpoint"), gone(&r, "wal")), (4, 8));
        assert_eq!(
            r.notes,
            [(1, "times", names::since(0)), (1, "wal", removed_note(9))],
            "{r:?}"
        );
        t.bases[4].whole = None;
        let r = removal(&[t.clone()], 6 * HOUR, Keep::Bases(2));
        assert_eq!((gone(&r, "checkpoint"), gone(&r, "wal")), (3, 6));
        t.bases.iter_mut().for_each(|b| b.whole = None);
        assert_eq!(
            removal(&[t.clone()], 6 * HOUR, Keep::Bases(1)),
            Removal::default()
        );
        t.bases[2].whole = Some(1);
        assert_eq!(
            removal(&[t], 6 * HOUR, Keep::Bases(2)),
            Removal::default(),
            "the last one stays, and there are not as many"
        );
    }

    #[test]
    fn a_time_keeps_the_base_in_front_of_it() {
        let t = hourly(1, 0, 6);
        // The state at three o'clock is in base 4, whose end is that moment's; a little earlier it is in base 3.
        for (keep, first) in [(3 * HOUR, 4), (3 * HOUR + 1, 3), (HOUR / 4, 6)] {
            let r = removal(std::slice::from_ref(&t), 6 * HOUR, Keep::Time(keep));
            assert_eq!(gone(&r, "checkpoint"), first - 1, "{keep}");
            let left = |m: &&Mark| {
                let object = (1, "times", m.name());
                !r.objects.contains(&object)
            };
            let marks = Times::of(&t.times).marks;
            assert_eq!(
                marks.iter().find(left).unwrap().time,
                (first as u64 - 1) * HOUR
            );
        }
        let r = removal(&[t], 6 * HOUR, Keep::Time(7 * HOUR));
        assert_eq!(r, Removal::default(), "nothing is so old");
    }

    #[test]
    fn older_terms_go_when_what_is_kept_lies_in_a_newer_one() {
        let (old, mut new) = (hourly(1, 0, 3), hourly(2, 3, 3));
        new.times.push(names::begins(at(60)));
        let listing = [old, new];
        let all = listing[0].checkpoint.len() + listing[0].wal.len() + listing[0].times.len();
        let r = removal(&listing, 6 * HOUR, Keep::Time(2 * HOUR));
        assert_eq!(r.objects.iter().filter(|o| o.0 == 1).count(), all);
        // Half past two was in the older term: its base 3 restores it.
        let r = removal(&listing, 6 * HOUR, Keep::Time(3 * HOUR + HOUR / 2));
        assert_eq!(gone(&r, "checkpoint"), 2);
        assert!(r.objects.iter().all(|o| o.0 == 1));
        let r = removal(&listing, 6 * HOUR, Keep::Bases(4));
        assert_eq!(gone(&r, "checkpoint"), 2);
    }

    #[test]
    fn notes_that_newer_ones_replace_go() {
        let mut t = hourly(1, 0, 2);
        t.times.push(names::whole(2, 9 * HOUR));
        t.wal.push(removed_note(1));
        t.wal.push(removed_note(2));
        let r = removal(&[t], 10 * HOUR, Keep::Bases(2));
        let names: Vec<_> = r.objects.iter().map(|o| o.2.clone()).collect();
        assert_eq!(names, [names::whole(2, HOUR + HOUR / 2), removed_note(1)]);
    }
}
