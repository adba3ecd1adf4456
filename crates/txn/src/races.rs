//! Which rows transactions fight for, and which races they lost lately: for people who look.
//!
//! | kept | most | an event |
//! |---|---|---|
//! | rows | [`ROWS`] | a transaction waits for the row's lock, or is told to try again because of the row |
//! | races | [`RACES`] | a transaction is told to try again: the row, and the transaction that won |
//!
//! The rows are the frequent ones of a stream (Space-Saving: Metwally, Agrawal and El Abbadi, ICDT 2005). A row that has no place takes the place of the
//! row with the fewest events, and starts with that number as its rank. So a row with more than one in [`ROWS`] of all events always has a place.
//! The counts that are shown are those since the row has its place.
//!
//! An event costs no wait: where another thread has the table at the same moment, the event is passed over.
//!
//! Left out on purpose: times, as this crate knows no clock; and rows without a primary key, which have no name.

use base::Position;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;

use crate::locks::{LockName, TxnId};

/// Most rows that are kept.
pub const ROWS: usize = 64;
/// Most lost races that are kept.
pub const RACES: usize = 64;

/// How a row without a name is described.
const UNNAMED: &str = "(row)";

/// A row with its table, as errors show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLabel {
    pub schema: String,
    pub table: String,
    /// `(id)=(3)`
    pub key: String,
}

impl RowLabel {
    /// The table's name, with its schema unless that is `public`.
    pub fn qualified(&self) -> String {
        match self.schema.as_str() {
            "public" => self.table.clone(),
            schema => format!("{schema}.{}", self.table),
        }
    }
}

/// A row that transactions fight for.
#[derive(Clone, Debug)]
pub struct ContendedRow {
    pub label: RowLabel,
    /// Waits for its lock.
    pub waits: u64,
    /// Transactions that were told to try again because of it.
    pub lost: u64,
}

/// The transaction that won a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Winner {
    /// It has committed at this position.
    Committed(Position),
    /// It runs, under this number.
    Running(TxnId),
    Unknown,
}

impl fmt::Display for Winner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Winner::Committed(at) => write!(f, "committed at {at}"),
            Winner::Running(number) => write!(f, "transaction {number}"),
            Winner::Unknown => f.write_str("another transaction"),
        }
    }
}

/// A transaction that was told to try again.
#[derive(Clone, Debug)]
pub struct Race {
    /// Grows by one with each race.
    pub number: u64,
    pub loser: TxnId,
    pub label: RowLabel,
    pub winner: Winner,
}

struct Place {
    row: ContendedRow,
    /// The name of the row's lock, once a transaction has waited for it.
    lock: Option<LockName>,
    /// The rank of the row that had this place before.
    from: u64,
}

impl Place {
    fn rank(&self) -> u64 {
        self.from + self.row.waits + self.row.lost
    }
}

#[derive(Default)]
struct Kept {
    places: Vec<Place>,
    races: VecDeque<Race>,
    number: u64,
}

/// See the head of the file.
#[derive(Default)]
pub struct Races(Mutex<Kept>);

impl Kept {
    /// The place of this row, made for it if it has none.
    fn place(&mut self, label: &RowLabel) -> Option<&mut Place> {
        if label.key == UNNAMED {
            return None;
        }
        let found = self.places.iter().position(|p| p.row.label == *label);
        let at = match found {
            Some(at) => at,
            None => self.make_place(label),
        };
        self.places.get_mut(at)
    }

    fn make_place(&mut self, label: &RowLabel) -> usize {
        let mut place = Place {
            row: ContendedRow {
                label: label.clone(),
                waits: 0,
                lost: 0,
            },
            lock: None,
            from: 0,
        };
        if self.places.len() < ROWS {
            self.places.push(place);
            return self.places.len() - 1;
        }
        let ranks = self.places.iter().map(Place::rank).enumerate();
        let (at, least) = ranks.min_by_key(|r| r.1).expect("there are places");
        place.from = least;
        self.places[at] = place;
        at
    }
}

impl Races {
    /// A transaction waits for the lock of a row; `label` says which row that is, where the lock is not known yet.
    pub(crate) fn waits(&self, lock: LockName, label: impl FnOnce() -> RowLabel) {
        let Some(mut kept) = self.0.try_lock() else {
            return;
        };
        if let Some(p) = kept.places.iter_mut().find(|p| p.lock == Some(lock)) {
            p.row.waits += 1;
        } else if let Some(p) = kept.place(&label()) {
            p.lock = Some(lock);
            p.row.waits += 1;
        }
    }

    /// A transaction is told to try again.
    pub(crate) fn lost(&self, loser: TxnId, label: RowLabel, winner: Winner) {
        let Some(mut kept) = self.0.try_lock() else {
            return;
        };
        if let Some(p) = kept.place(&label) {
            p.row.lost += 1;
        }
        kept.number += 1;
        if kept.races.len() == RACES {
            kept.races.pop_front();
        }
        let number = kept.number;
        kept.races.push_back(Race {
            number,
            loser,
            label,
            winner,
        });
    }

    /// Rows with a place, the one with the most events first.
    pub fn rows(&self) -> Vec<ContendedRow> {
        let kept = self.0.lock();
        let mut rows: Vec<_> = kept.places.iter().map(|p| p.row.clone()).collect();
        rows.sort_by_key(|r| std::cmp::Reverse(r.waits + r.lost));
        rows
    }

    /// The newest lost races, the newest first.
    pub fn newest(&self) -> Vec<Race> {
        self.0.lock().races.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(n: usize) -> RowLabel {
        RowLabel {
            schema: "public".into(),
            table: "t".into(),
            key: format!("(id)=({n})"),
        }
    }

    fn lock(n: usize) -> LockName {
        LockName {
            space: 1,
            hash: n as u64,
        }
    }

    #[test]
    fn a_frequent_row_has_a_place_among_many_others() {
        let races = Races::default();
        for n in 1..20 * ROWS {
            races.waits(lock(n), || label(n));
            if n % 8 == 0 {
                races.lost(7, label(0), Winner::Unknown);
                races.waits(lock(0), || label(0));
            }
        }
        let rows = races.rows();
        assert_eq!(rows.len(), ROWS);
        assert_eq!(rows[0].label, label(0));
        assert!(rows[0].waits > 100 && rows[0].lost > 100, "{:?}", rows[0]);
    }

    #[test]
    fn the_newest_races_are_kept_with_their_winners() {
        let races = Races::default();
        for n in 0..RACES + 5 {
            races.lost(n as u64, label(n), Winner::Running(3));
        }
        let newest = races.newest();
        assert_eq!(newest.len(), RACES);
        assert_eq!(newest[0].number, RACES as u64 + 5);
        assert_eq!(newest[0].label, label(RACES + 4));
        assert_eq!(newest[0].winner, Winner::Running(3));
    }

    #[test]
    fn a_row_without_a_name_has_no_place() {
        let races = Races::default();
        let unnamed = RowLabel {
            key: UNNAMED.into(),
            ..label(1)
        };
        races.lost(1, unnamed.clone(), Winner::Unknown);
        races.waits(lock(1), || unnamed);
        assert!(races.rows().is_empty());
        assert_eq!(races.newest().len(), 1);
    }
}
