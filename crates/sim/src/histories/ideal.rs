//! What a history should come to: the rows after each commit, made from what clients asked for.

use base::Position;
use std::collections::{BTreeMap, BTreeSet};

use crate::histories::tables::{Name, Row, Table};

pub type Rows = BTreeMap<Name, Row>;

/// What a transaction does to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Put(Row),
    Gone,
    /// Adds this much to a stock.
    Add(i64),
}

impl Write {
    /// The row that comes of it.
    pub fn over(&self, row: Option<&Row>) -> Option<Row> {
        match self {
            Write::Put(row) => Some(row.clone()),
            Write::Gone => None,
            Write::Add(by) => row.map(|r| vec![r[0] + by]),
        }
    }
}

struct State {
    at: Position,
    rows: Rows,
    changed: BTreeSet<Name>,
}

/// All states of a history, from the one that it began with.
pub struct Ideal {
    states: Vec<State>,
    /// Where rights were last changed.
    pub rights: Position,
    /// The primary has forgotten what came and went below.
    pub reclaimed: Position,
}

impl Ideal {
    pub fn new(at: Position, rows: Rows) -> Ideal {
        Ideal {
            states: vec![State {
                at,
                rows,
                changed: BTreeSet::new(),
            }],
            rights: Position::ZERO,
            reclaimed: Position::ZERO,
        }
    }

    /// The rows at a position.
    pub fn at(&self, at: Position) -> &Rows {
        let n = self.states.partition_point(|s| s.at <= at);
        &self.states[n.saturating_sub(1)].rows
    }

    pub fn newest(&self) -> &Rows {
        self.at(Position::MAX)
    }

    /// The last change of a row up to a position; zero: none since the history began.
    pub fn last_change(&self, name: &Name, upto: Position) -> Position {
        let states = self.states.iter().rev();
        let mut below = states.filter(|s| s.at <= upto && s.changed.contains(name));
        below.next().map_or(Position::ZERO, |s| s.at)
    }

    /// Whether one of these, or any row of these tables, has changed above a position.
    pub fn has_changed(&self, names: &BTreeSet<Name>, tables: &[Table], above: Position) -> bool {
        let states = self.states.iter().filter(|s| s.at > above);
        let mut changed = states.flat_map(|s| &s.changed);
        changed.any(|n| names.contains(n) || tables.contains(&n.0))
    }

    /// A commit. What it breaks, if anything.
    pub fn commit(&mut self, at: Position, writes: &BTreeMap<Name, Write>) -> Result<(), String> {
        let mut rows = self.newest().clone();
        for (name, write) in writes {
            match write.over(rows.get(name)) {
                Some(row) => drop(rows.insert(*name, row)),
                None => drop(rows.remove(name)),
            }
        }
        let sound = is_sound(&rows);
        // What came and went within the transaction was no change.
        let was = self.newest();
        let differs = |n: &&Name| was.contains_key(*n) || rows.contains_key(*n);
        let changed = writes.keys().filter(differs).copied().collect();
        self.states.push(State { at, rows, changed });
        sound
    }
}

fn is_sound(rows: &Rows) -> Result<(), String> {
    let mut unique = BTreeSet::new();
    for ((table, id), row) in rows {
        let holds = match table {
            Table::Parent => unique.insert(row[1]),
            Table::Child => rows.contains_key(&(Table::Parent, row[0])),
            Table::Stock => row[0] >= 0,
        };
        if !holds {
            return Err(format!("{table:?} {id} is {row:?} among {rows:?}"));
        }
    }
    Ok(())
}
